"""Writes small checkpoints of all methods of quantization."""

from collections.abc import Mapping
import json
import os
from typing import Any, NamedTuple

import numpy as np

from converters.hf import safetensors_file
from converters.hf import weights_file
from converters.testing import gguf_files
from converters.testing import quantized_matrices


class Case(NamedTuple):
  """A method: the settings in config.json, and a function that makes matrices."""

  config: Mapping[str, Any]
  write: quantized_matrices.Writer


def compressed(format_: str, **weights: Any) -> dict[str, Any]:
  """Returns the `quantization_config` of compressed-tensors.

  Args:
    format_: The format.
    **weights: The settings of the weights.
  """
  group = {
    'targets': ['Linear'],
    'weights': {'num_bits': 8, 'type': 'int', 'symmetric': True, **weights},
    'input_activations': None,
  }
  return {
    'quant_method': 'compressed-tensors',
    'format': format_,
    'config_groups': {'group_0': group},
    'ignore': ['lm_head'],
  }


def _gptq_config(**changes: Any) -> dict[str, Any]:
  return {
    'quant_method': 'gptq',
    'bits': 4,
    'group_size': 128,
    'desc_act': False,
    'sym': False,
    **changes,
  }


_STATIC = {'input_scale': np.ones((), np.float32)}
CASES: Mapping[str, Case] = {
  'fp8_tensor': Case(
    {'quant_method': 'fp8', 'activation_scheme': 'static'},
    quantized_matrices.plain('fp8', (0, 0), scale_shape=(), extra=_STATIC),
  ),
  'fp8_block': Case(
    {'quant_method': 'fp8', 'weight_block_size': [96, 128]},
    quantized_matrices.plain('fp8', (96, 128), 'weight_scale_inv'),
  ),
  'fbgemm_fp8': Case(
    {'quant_method': 'fbgemm_fp8'}, quantized_matrices.plain('fp8', (1, 0))
  ),
  'compressed_float_channel': Case(
    compressed('float-quantized', type='float', strategy='channel'),
    quantized_matrices.plain('fp8', (1, 0)),
  ),
  'compressed_float_block': Case(
    compressed(
      'float-quantized',
      type='float',
      strategy='block',
      block_structure=[128, 128],
    ),
    quantized_matrices.plain('fp8', (128, 128)),
  ),
  'compressed_int_channel': Case(
    compressed('int-quantized', strategy='channel'),
    quantized_matrices.plain('int', (1, 0)),
  ),
  'compressed_int_tensor': Case(
    compressed('int-quantized', strategy='tensor'),
    quantized_matrices.plain('int', (0, 0), scale_shape=(1,)),
  ),
  'compressed_int_asymmetric': Case(
    compressed(
      'int-quantized', strategy='group', group_size=64, symmetric=False
    ),
    quantized_matrices.plain('asymmetric', (1, 64)),
  ),
  'compressed_packed': Case(
    compressed('pack-quantized', num_bits=4, strategy='group', group_size=32),
    quantized_matrices.packed(4, 32),
  ),
  'compressed_packed_zeros': Case(
    compressed(
      'pack-quantized',
      num_bits=4,
      strategy='group',
      group_size=64,
      symmetric=False,
    ),
    quantized_matrices.packed(4, 64, has_zeros=True),
  ),
  'compressed_packed_order': Case(
    compressed(
      'pack-quantized',
      num_bits=4,
      strategy='group',
      group_size=64,
      actorder='group',
    ),
    quantized_matrices.packed(4, 64, has_order=True),
  ),
  'compressed_packed_channel': Case(
    compressed('pack-quantized', num_bits=8, strategy='channel'),
    quantized_matrices.packed(8, 0),
  ),
  'gptq': Case(_gptq_config(), quantized_matrices.gptq(4, 128, 1, False)),
  'gptq_order': Case(
    _gptq_config(bits=8, group_size=64, desc_act=True),
    quantized_matrices.gptq(8, 64, 1, True),
  ),
  'gptq_v2': Case(
    _gptq_config(group_size=-1, checkpoint_format='gptq_v2'),
    quantized_matrices.gptq(4, 0, 0, False),
  ),
  'awq': Case(
    {'quant_method': 'awq', 'bits': 4, 'group_size': 64, 'version': 'gemm'},
    quantized_matrices.awq,
  ),
  **{
    f'bitsandbytes_{kind}{"_nested" if nested else ""}': Case(
      {'load_in_4bit': True, 'bnb_4bit_quant_type': kind},
      quantized_matrices.four_bits(kind, nested),
    )
    for kind, nested in (('nf4', False), ('nf4', True), ('fp4', False))
  },
  'bitsandbytes_int8': Case(
    {'quant_method': 'bitsandbytes', 'load_in_8bit': True},
    quantized_matrices.llm_int8,
  ),
}


def tensors(
  case: str,
) -> tuple[quantized_matrices.Tensors, quantized_matrices.Tensors]:
  """Returns the tensors of a Llama, and what they stand for.

  Args:
    case: A key of CASES.

  Returns:
    The tensors of the quantized model by name, and those of the same model in
    floating point.
  """
  rng = np.random.default_rng(1)
  stored, plain = {}, {}
  for name, value in gguf_files.state_dict().items():
    stem, _, part = name.rpartition('.')
    if value.ndim < 2 or not name.startswith('model.layers.'):
      stored[name] = plain[name] = value
      continue
    matrix = CASES[case].write(rng, value.shape)
    stored |= {f'{stem}.{rest}': x for rest, x in matrix.tensors.items()}
    plain[f'{stem}.{part}'] = matrix.values
  return stored, plain


def save(
  directory: str, values: quantized_matrices.Tensors, config: Any = None
) -> str:
  """Writes a Hugging Face directory without a tokenizer; returns it.

  Args:
    directory: The directory, which is created.
    values: The tensors of a Llama.
    config: The `quantization_config`; None for a float model.
  """
  os.makedirs(directory, exist_ok=True)
  gguf_files.save_hf(directory, {'lm_head.weight': np.zeros((1, 1))})
  path = os.path.join(directory, 'config.json')
  with open(path) as f:
    document = json.load(f)
  if config:
    document['quantization_config'] = dict(config)
  with open(path, 'w') as f:
    json.dump(document, f)
  specs = [
    weights_file.TensorSpec(name, x.shape, x.dtype)
    for name, x in values.items()
  ]
  safetensors_file.write(
    os.path.join(directory, 'model.safetensors'), specs, values.values()
  )
  return directory
