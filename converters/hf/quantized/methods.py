"""Chooses the reader of quantized weights by the entries of config.json."""

from collections.abc import Callable, Mapping
from typing import Any

from converters.hf.quantized import bitsandbytes
from converters.hf.quantized import compressed_tensors
from converters.hf.quantized import fp8
from converters.hf.quantized import gptq
from converters.hf.quantized import scheme
from saxml_ext.families import hf_entries
from saxml_ext.pax import errors

# The readers by `quant_method`. Each function raises errors.CheckpointError if
# it does not know a setting.
_METHODS: Mapping[str, Callable[[hf_entries.Entries], scheme.Scheme]] = {
  'awq': gptq.awq_from_settings,
  'bitsandbytes': bitsandbytes.from_settings,
  'compressed-tensors': compressed_tensors.from_settings,
  'fbgemm_fp8': fp8.from_settings,
  'fp8': fp8.from_settings,
  'gptq': gptq.gptq_from_settings,
}
# The entries of config.json that quantizers write, and the method of each if it
# states none.
_KEYS = {
  'quantization_config': 'unknown method',
  'compression_config': 'compressed-tensors',
  'quantization': 'mlx',
}


def read(path: str, document: Mapping[str, Any]) -> scheme.Scheme | None:
  """Returns the scheme of quantized weights, or None for float weights.

  Args:
    path: The path of config.json, for messages.
    document: The contents of the file.

  Raises:
    errors.CheckpointError: The method or one of its settings is not supported.
  """
  for key, method in _KEYS.items():
    if settings := document.get(key):
      if isinstance(settings, dict):
        if {'load_in_4bit', 'load_in_8bit'} & settings.keys():
          method = 'bitsandbytes'
        method = str(settings.get('quant_method') or method)[:100]
      if method not in _METHODS or not isinstance(settings, dict):
        raise errors.CheckpointError(
          f'{path}: {key} says that the weights are quantized ({method}), but'
          ' only floating-point weights, GGUF files and these methods are read:'
          f' {", ".join(_METHODS)}. {scheme.DEQUANTIZE}'
        )
      try:
        return _METHODS[method](hf_entries.Entries(f'{path}: {key}', settings))
      except errors.CheckpointError as e:
        raise errors.CheckpointError(f'{e} {scheme.DEQUANTIZE}') from e
  return None
