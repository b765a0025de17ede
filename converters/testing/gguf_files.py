"""Writes small GGUF files, and the same models in Hugging Face's format."""

from collections.abc import Callable, Mapping
import json
import os
from typing import Any, TypeAlias

import gguf
from gguf import quants
import numpy as np
from safetensors import numpy as safetensors_numpy

DIM, HEADS, KV_HEADS, HIDDEN, LAYERS = 256, 4, 2, 512, 2
SPECIAL = ('<|end|>', '<|im_start|>', '<|im_end|>')
MERGES = ('h e', 'l l', 'he ll', 'hell o', 'Ġ w', '1 2')
TEMPLATE = '{% for m in messages %}{{ m.content }}{% endfor %}'
TYPES: TypeAlias = gguf.GGMLQuantizationType
_MOST_LAYERS = 4
# The architectures whose queries and keys llama.cpp reorders.
_NEIGHBORS = ('llama', 'granite', 'smollm3')


def byte_tokens() -> list[str]:
  """Returns the stand-ins of all bytes, in the order of GPT-2's vocabulary."""
  printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
  rest = [chr(256 + i) for i in range(256 - len(printable))]
  return [chr(b) for b in printable] + rest


TOKENS = (*SPECIAL, *byte_tokens(), *(m.replace(' ', '') for m in MERGES))
VOCAB = len(TOKENS)


def state_dict(
  biases: bool = False, tied: bool = False, seed: int = 0
) -> dict[str, np.ndarray]:
  """Returns random float32 tensors with the names that transformers uses."""
  rows = {'q': DIM, 'k': DIM // HEADS * KV_HEADS, 'v': DIM // HEADS * KV_HEADS}
  shapes: dict[str, tuple[int, ...]] = {
    'model.embed_tokens.weight': (VOCAB, DIM),
    'model.norm.weight': (DIM,),
  }
  if not tied:
    shapes['lm_head.weight'] = (VOCAB, DIM)
  for i in range(LAYERS):
    layer = f'model.layers.{i}'
    shapes |= {
      **{
        f'{layer}.self_attn.{x}_proj.weight': (n, DIM) for x, n in rows.items()
      },
      f'{layer}.self_attn.o_proj.weight': (DIM, DIM),
      f'{layer}.mlp.gate_proj.weight': (HIDDEN, DIM),
      f'{layer}.mlp.up_proj.weight': (HIDDEN, DIM),
      f'{layer}.mlp.down_proj.weight': (DIM, HIDDEN),
      f'{layer}.input_layernorm.weight': (DIM,),
      f'{layer}.post_attention_layernorm.weight': (DIM,),
    }
    if biases:
      shapes |= {
        f'{layer}.self_attn.{x}_proj.bias': (n,) for x, n in rows.items()
      }
  rng = np.random.default_rng(seed)
  return {
    name: rng.standard_normal(shape).astype(np.float32)
    for name, shape in shapes.items()
  }


def save_hf(
  directory: str, tensors: Mapping[str, np.ndarray], family: str = 'llama'
) -> str:
  """Writes a Hugging Face directory without a tokenizer; returns it."""
  config = {
    'model_type': family,
    'hidden_size': DIM,
    'intermediate_size': HIDDEN,
    'num_hidden_layers': LAYERS,
    'num_attention_heads': HEADS,
    'num_key_value_heads': KV_HEADS,
    'max_position_embeddings': 128,
    'rms_norm_eps': 1e-5,
    'rope_theta': 5e5,
    'vocab_size': VOCAB,
    'tie_word_embeddings': 'lm_head.weight' not in tensors,
    'bos_token_id': 1,
    'eos_token_id': [2, 0],
    'pad_token_id': 0,
  }
  with open(os.path.join(directory, 'config.json'), 'w') as f:
    json.dump(config, f)
  safetensors_numpy.save_file(
    dict(tensors), os.path.join(directory, 'model.safetensors')
  )
  return directory


def metadata(family: str = 'llama', **changes: Any) -> dict[str, Any]:
  """Returns the metadata of the model of `state_dict`.

  Args:
    family: The architecture.
    **changes: The values to change. In a name, `__` stands for a dot, and a
      leading `_` for the architecture. None removes a key.
  """
  values = {
    f'{family}.context_length': 128,
    f'{family}.embedding_length': DIM,
    f'{family}.block_count': LAYERS,
    f'{family}.feed_forward_length': HIDDEN,
    f'{family}.attention.head_count': HEADS,
    f'{family}.attention.head_count_kv': KV_HEADS,
    f'{family}.attention.layer_norm_rms_epsilon': 1e-5,
    f'{family}.rope.freq_base': 5e5,
    f'{family}.vocab_size': VOCAB,
    'tokenizer.ggml.model': 'gpt2',
    'tokenizer.ggml.pre': 'smollm',
    'tokenizer.ggml.tokens': list(TOKENS),
    'tokenizer.ggml.token_type': [3] * len(SPECIAL)
    + [1] * (VOCAB - len(SPECIAL)),
    'tokenizer.ggml.merges': list(MERGES),
    'tokenizer.ggml.bos_token_id': 1,
    'tokenizer.ggml.eos_token_id': 2,
    'tokenizer.ggml.padding_token_id': 0,
    'tokenizer.chat_template': TEMPLATE,
  }
  for name, value in changes.items():
    key = f'{family}.{name[1:]}' if name.startswith('_') else name
    values[key.replace('__', '.')] = value
  return {key: value for key, value in values.items() if value is not None}


def write(
  path: str,
  tensors: Mapping[str, np.ndarray],
  values: Mapping[str, Any],
  family: str = 'llama',
  type_of: Callable[[str], TYPES] = lambda name: TYPES.F32,
  endianess: gguf.GGUFEndian = gguf.GGUFEndian.LITTLE,
  head_dim: int = DIM // HEADS,
) -> str:
  """Writes a GGUF file as convert_hf_to_gguf does; returns its path.

  Args:
    path: The file to write.
    tensors: The tensors by transformers' names, or by their names in the file.
    values: The metadata.
    family: The architecture.
    type_of: A function from a matrix's name in the file to its type.
    endianess: The order of bytes.
    head_dim: The width of a head.
  """
  [arch] = [a for a, name in gguf.MODEL_ARCH_NAMES.items() if name == family]
  names = gguf.get_tensor_name_map(arch, _MOST_LAYERS)
  writer = gguf.GGUFWriter(path, family, endianess=endianess)
  for key, value in values.items():
    if isinstance(value, bool):
      writer.add_bool(key, value)
    elif isinstance(value, int):
      writer.add_uint32(key, value)
    elif isinstance(value, float):
      writer.add_float32(key, value)
    elif isinstance(value, str):
      writer.add_string(key, value)
    else:
      writer.add_array(key, value)
  for name, tensor in tensors.items():
    if family in _NEIGHBORS and ('q_proj' in name or 'k_proj' in name):
      tensor = _neighbors(tensor, head_dim)
    if family == 'gemma' and name.endswith('norm.weight'):
      tensor = tensor + 1
    name = names.get_name(name, ('.weight', '.bias')) or name
    kind = type_of(name) if tensor.ndim > 1 else TYPES.F32
    if kind == TYPES.F32:
      writer.add_tensor(name, tensor)
    else:
      writer.add_tensor(name, quants.quantize(tensor, kind), raw_dtype=kind)
  writer.write_header_to_file()
  writer.write_kv_data_to_file()
  writer.write_tensors_to_file()
  writer.close()
  return path


def _neighbors(tensor: np.ndarray, head_dim: int) -> np.ndarray:
  """Returns queries or keys whose rotated pairs are neighbors."""
  halves = tensor.reshape(-1, 2, head_dim // 2, *tensor.shape[1:])
  return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(tensor.shape))
