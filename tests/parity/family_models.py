"""Makes random models of all families with transformers, for tests."""

import dataclasses
import functools
import json
import os
import tempfile

from absl.testing import absltest
from safetensors import torch as safetensors_torch
import torch
import transformers

from converters.convert import conversion
from saxml_ext.engine import architecture
from saxml_ext.families import all as families
from saxml_ext.families import family as family_lib
from saxml_ext.families import hf_config

SIZES = hf_config.HFConfig(
  num_layers=2,
  model_dim=32,
  num_heads=4,
  hidden_dim=64,
  rotary_dim=4,
  vocab_size=64,
  max_positions=64,
  bos_id=0,
  eos_id=0,
  pad_id=0,
)
# The sizes of a family whose config.json has more of them.
_LLAMA = dataclasses.replace(SIZES, num_kv_heads=2, rotary_dim=8)
SCALING = architecture.RotaryScaling(8.0, 1.0, 4.0, 16)
OWN_SIZES = {
  'llama': dataclasses.replace(_LLAMA, rotary_scaling=SCALING),
  'qwen2': _LLAMA,
  'qwen3': dataclasses.replace(
    _LLAMA, num_kv_heads=1, rotary_dim=16, own_head_dim=16
  ),
  'phi3': dataclasses.replace(
    SIZES,
    num_kv_heads=2,
    rotary_scaling=architecture.RotaryScaling(
      1.0, 1.0, 4.0, 1, (1.0, 2.5), 1.2
    ),
  ),
  'granite': dataclasses.replace(
    _LLAMA, details=architecture.Details(3.0, 0.22, 0.5, 0.75)
  ),
  'smollm3': dataclasses.replace(
    _LLAMA, details=architecture.Details(unrotated=(1,))
  ),
  'olmo2': _LLAMA,
  'gemma': dataclasses.replace(
    _LLAMA, num_kv_heads=1, rotary_dim=16, own_head_dim=16
  ),
  'mistral': dataclasses.replace(
    _LLAMA, rotary_dim=16, own_head_dim=16, hidden_dim=48
  ),
}


def save(
  directory: str,
  family: family_lib.Family,
  sizes: hf_config.HFConfig | None = None,
  seed: int = 1,
):
  """Returns a random model of transformers, which is saved to a directory."""
  sizes = sizes or OWN_SIZES.get(family.name, SIZES)
  with open(os.path.join(directory, 'config.json'), 'w') as file:
    json.dump(hf_config.document(family.name, sizes, family.config), file)
  config = transformers.AutoConfig.from_pretrained(directory)
  torch.manual_seed(seed)
  model = transformers.AutoModelForCausalLM.from_config(config).eval()
  with torch.no_grad():
    for parameter in model.parameters():
      # Norms and biases are random too, so that the test detects a missing one.
      parameter.copy_(torch.randn_like(parameter) * 0.4)
  model.save_pretrained(directory)
  return model


def add_adapter(model, directory: str) -> None:
  """Writes a LoRA adapter for a model, and adds it to the model's weights."""
  rank, alpha = 3, 5
  torch.manual_seed(1)
  tensors, targets = {}, set()
  for name, module in model.named_modules():
    if isinstance(module, torch.nn.Linear):
      outputs, inputs = module.weight.shape
      a, b = torch.randn(rank, inputs) * 0.3, torch.randn(outputs, rank) * 0.3
      tensors[f'base_model.model.{name}.lora_A.weight'] = a
      tensors[f'base_model.model.{name}.lora_B.weight'] = b
      targets.add(name.rpartition('.')[2])
      with torch.no_grad():
        module.weight += alpha / rank * (b @ a)
  safetensors_torch.save_file(
    tensors, os.path.join(directory, 'adapter_model.safetensors')
  )
  settings = {
    'peft_type': 'LORA',
    'r': rank,
    'lora_alpha': alpha,
    'target_modules': sorted(targets),
  }
  with open(os.path.join(directory, 'adapter_config.json'), 'w') as file:
    json.dump(settings, file)


@functools.cache
def saved(
  name: str, sizes: hf_config.HFConfig | None = None, seed: int = 1
) -> tuple[transformers.PreTrainedModel, str]:
  """Returns a model of transformers and the directory to which it is saved.

  Tests share both, so they must not change them.
  """
  base = _directory()
  return save(base, families.FAMILIES[name], sizes, seed), base


@functools.cache
def convert(
  name: str,
  sizes: hf_config.HFConfig | None = None,
  seed: int = 1,
  dtype: str = 'float32',
) -> tuple[transformers.PreTrainedModel, str]:
  """Returns a model of transformers and its converted checkpoint.

  Tests share both, so they must not change them.
  """
  reference, base = saved(name, sizes, seed)
  pax = _directory()
  conversion.convert(base, pax, dtype, compress=False)
  return reference, pax


def _directory() -> str:
  return tempfile.mkdtemp(dir=absltest.TEST_TMPDIR.value)
