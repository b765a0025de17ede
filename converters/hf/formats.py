"""Recognizes models that cannot be read as they are, and names the remedy."""

from collections.abc import Mapping, Sequence
import os
import re
from typing import Any

from saxml_ext.pax import errors

# The remedy for quantized weights.
DEQUANTIZE = (
  'Use the unquantized model or a GGUF file of it. If its method allows it,'
  ' transformers makes the former: load the model, and call'
  ' model.dequantize().save_pretrained(...).'
)
_POINTER = b'version https://git-lfs'
# The entries of config.json, and the files beside it, that quantizers write, and
# the method of each if it states none.
_QUANTIZED = {
  'quantization_config': 'unknown method',
  'compression_config': 'compressed-tensors',
  'quantization': 'mlx',
}
_QUANTIZED_FILES = {
  'quantize_config.json': 'gptq',
  'quant_config.json': 'awq',
  'hf_quant_config.json': 'modelopt',
}
_WEIGHTS = re.compile(
  r'(model|pytorch_model)(?:\.([\w-]+?))?'
  r'(?:-(\d+)-of-(\d+))?\.(safetensors|bin)'
)
_SHOWN = 10


def check_pointer(path: str, data: bytes) -> None:
  """Raises errors.CheckpointError if a file is a pointer of Git LFS.

  Args:
    path: The path of the file.
    data: The contents, or at least their first bytes.
  """
  if data.startswith(_POINTER):
    raise errors.CheckpointError(
      f'{path} is a pointer of Git LFS instead of the file itself. Run "git lfs'
      ' pull" in its directory.'
    )


def check_quantization(directory: str, document: Mapping[str, Any]) -> None:
  """Raises errors.CheckpointError if a model has quantized weights.

  Args:
    directory: The directory of the model.
    document: The contents of its config.json.
  """
  method, file = _method(document), 'config.json'
  for name, writer in _QUANTIZED_FILES.items():
    if not method and os.path.exists(os.path.join(directory, name)):
      method, file = writer, name
  if method:
    raise errors.CheckpointError(
      f'{os.path.join(directory, file)}: the weights are quantized ({method}),'
      f' but only floating-point weights and GGUF files are read. {DEQUANTIZE}'
    )


def _method(document: Mapping[str, Any]) -> str:
  """Returns the method that config.json states, or '' if there is none."""
  for key, method in _QUANTIZED.items():
    if settings := document.get(key):
      if not isinstance(settings, dict):
        return method
      if {'load_in_4bit', 'load_in_8bit'} & settings.keys():
        method = 'bitsandbytes'
      return str(settings.get('quant_method') or method)[:100]
  return ''


def missing_config(directory: str) -> errors.CheckpointError:
  """Returns the error of a directory without config.json."""
  names = sorted(os.listdir(directory)) if os.path.isdir(directory) else []
  if 'adapter_config.json' in names:
    remedy = (
      'It has a LoRA adapter. Merge it into its base model with "convert_hf'
      f' --base=MODEL --lora={directory} --pax=NEW", and use the new directory.'
    )
  elif any(name.startswith('consolidated.') for name in names):
    remedy = (
      'It has files of Meta\'s format. Convert it with "convert_llama_ckpt'
      f' --base={directory} --pax=NEW", and use the new directory.'
    )
  else:
    remedy = f'Expected the directory of a model. {_contents(names)}'
  return errors.CheckpointError(f'{directory} has no config.json. {remedy}')


def weight_names(directory: str, whole: str) -> list[str]:
  """Returns the files of weights that have other names than the usual ones.

  These are shards without an index, and variants such as model.fp16.safetensors.

  Args:
    directory: The directory of the model.
    whole: The usual name, such as model.safetensors.

  Returns:
    The names, or [] if there are none.

  Raises:
    errors.CheckpointError: Shards are missing, or there are several variants.
  """
  variants: dict[str, list[re.Match[str]]] = {}
  for name in sorted(os.listdir(directory)):
    match = _WEIGHTS.fullmatch(name)
    if match and f'{match[1]}.{match[5]}' == whole:
      variants.setdefault(match[2] or '', []).append(match)
  if len(variants) > 1:
    listed = ', '.join(files[0][0] for files in variants.values())
    raise errors.CheckpointError(
      f'{directory} has several variants of the weights: {listed}. Keep one of'
      ' them.'
    )
  for files in variants.values():
    total = int(files[0][4] or 1)
    numbers = {int(file[3] or 1) for file in files}
    if len(numbers) != len(files) or numbers != set(range(1, total + 1)):
      raise errors.CheckpointError(
        f'{directory} has {len(files)} of the {total} files of its weights:'
        f' {", ".join(file[0] for file in files[:_SHOWN])}. Download the others.'
      )
    return [file[0] for file in files]
  return []


def missing_weights(
  directory: str, expected: Sequence[str]
) -> errors.CheckpointError:
  """Returns the error of a directory without weights that can be read.

  Args:
    directory: The directory of the model.
    expected: The usual names of weights.
  """
  names = sorted(os.listdir(directory))
  remedy = ''
  if gguf := [name for name in names if name.endswith('.gguf')]:
    remedy = f' Use the path of the GGUF file, such as {gguf[0]}, instead.'
  return errors.CheckpointError(
    f'{directory} has no weights. Expected one of'
    f' {", ".join(f"{name}[.index.json]" for name in expected)}.'
    f' {_contents(names)}{remedy}'
  )


def _contents(names: Sequence[str]) -> str:
  more = ', ...' if len(names) > _SHOWN else ''
  return f'It has {", ".join(names[:_SHOWN]) or "no files"}{more}.'
