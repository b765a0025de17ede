"""Makes small GPT-J checkpoints for tests without the tested code."""

import json
import os

import numpy as np
from safetensors import numpy as safetensors_numpy

DIM, HEADS, HIDDEN, LAYERS, VOCAB, ROTARY = 16, 2, 64, 2, 11, 4


def config(**changes) -> dict:
  """Returns the small model's config.json.

  Args:
    **changes: The fields to change; None removes a field.
  """
  fields = {
    'architectures': ['GPTJForCausalLM'],
    'model_type': 'gptj',
    'activation_function': 'gelu_new',
    'n_layer': LAYERS,
    'n_embd': DIM,
    'n_head': HEADS,
    'n_inner': None,
    'n_positions': 128,
    'rotary_dim': ROTARY,
    'vocab_size': VOCAB,
    'layer_norm_epsilon': 1e-5,
    'tie_word_embeddings': False,
    'bos_token_id': 3,
    'eos_token_id': 4,
  }
  fields.update(changes)
  return fields


def state_dict(seed: int = 0) -> dict[str, np.ndarray]:
  """Returns random float32 tensors with the names that transformers uses."""
  shapes: dict[str, tuple[int, ...]]
  shapes = {'transformer.wte.weight': (VOCAB, DIM)}
  for i in range(LAYERS):
    h = f'transformer.h.{i}'
    shapes |= {
      f'{h}.ln_1.weight': (DIM,),
      f'{h}.ln_1.bias': (DIM,),
      f'{h}.attn.q_proj.weight': (DIM, DIM),
      f'{h}.attn.k_proj.weight': (DIM, DIM),
      f'{h}.attn.v_proj.weight': (DIM, DIM),
      f'{h}.attn.out_proj.weight': (DIM, DIM),
      f'{h}.mlp.fc_in.weight': (HIDDEN, DIM),
      f'{h}.mlp.fc_in.bias': (HIDDEN,),
      f'{h}.mlp.fc_out.weight': (DIM, HIDDEN),
      f'{h}.mlp.fc_out.bias': (DIM,),
    }
  shapes |= {
    'transformer.ln_f.weight': (DIM,),
    'transformer.ln_f.bias': (DIM,),
    'lm_head.weight': (VOCAB, DIM),
    'lm_head.bias': (VOCAB,),
  }
  rng = np.random.default_rng(seed)
  return {
    name: rng.standard_normal(shape).astype(np.float32)
    for name, shape in shapes.items()
  }


def save(
  directory: str,
  tensors: dict[str, np.ndarray] | None = None,
  **config_changes,
) -> str:
  """Writes config.json and model.safetensors.

  Args:
    directory: The output directory.
    tensors: The tensors by name; by default those of `state_dict`.
    **config_changes: The fields of the config to change.

  Returns:
    The directory.
  """
  os.makedirs(directory, exist_ok=True)
  with open(os.path.join(directory, 'config.json'), 'w') as f:
    json.dump(config(**config_changes), f)
  safetensors_numpy.save_file(
    state_dict() if tensors is None else tensors,
    os.path.join(directory, 'model.safetensors'),
  )
  return directory
