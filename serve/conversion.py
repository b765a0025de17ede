"""Converts models from Hugging Face's format, and caches the result."""

from collections.abc import Callable, Mapping
import fcntl
import hashlib
import os
import shutil

import psutil

from converters.hf import checkpoint
from converters.hf import tokenizer_files
from saxml_ext.families import hf_config
from saxml_ext.pax import errors as pax_errors
from serve import programs

# A function that runs a program of this repository to its end. The arguments
# are the name in messages, the path of the program and its flags.
Run = Callable[[str, str, Mapping[str, object]], None]

CHECKPOINT = 'checkpoint_00000000'
FLOAT_BYTES = {'float32': 4, 'bfloat16': 2}
GIB = 2**30


def check(directory: str) -> None:
  """Raises programs.ServeError unless a directory has a supported model."""
  if not os.path.isdir(directory):
    raise programs.ServeError(
      f'{directory} is neither a directory nor a model id on the Hugging Face'
      ' hub. Pass a Hugging Face directory (config.json, safetensors or .bin'
      ' files), a PAX directory, or an id such as EleutherAI/gpt-j-6b.'
    )
  try:
    checkpoint.read_config(directory)
  except pax_errors.CheckpointError as e:
    raise programs.ServeError(str(e)) from e
  names = (tokenizer_files.TOKENIZER, tokenizer_files.SENTENCEPIECE)
  if not any(os.path.isfile(os.path.join(directory, name)) for name in names):
    raise programs.ServeError(
      f'{directory} has neither {" nor ".join(names)}, which is required for'
      ' text. Make it with transformers:'
      f" AutoTokenizer.from_pretrained('...').save_pretrained('{directory}')."
    )


def converted(
  directory: str, name: str, quantize: bool, cache: str, run: Run
) -> str:
  """Returns the PAX directory of a Hugging Face model, converted on first use.

  An interrupted conversion is resumed.

  Args:
    directory: The Hugging Face directory, which must have passed `check`.
    name: The prefix of the directory's name in the cache.
    quantize: True to convert the matrices to int8.
    cache: The directory for converted models.
    run: The function that runs the converters.

  Raises:
    programs.ServeError: The disk is too full, or a converter failed.
  """
  _, config = checkpoint.read_config(directory)
  dtype = _float_type(_parameters(config), quantize)
  target = os.path.join(
    cache, f'{name}-{_stamp(directory, dtype, str(quantize))}'
  )
  os.makedirs(cache, exist_ok=True)
  with open(f'{target}.lock', 'w', encoding='utf-8') as lock:
    # Another `serve` may be converting the model.
    fcntl.flock(lock, fcntl.LOCK_EX)
    if os.path.isdir(os.path.join(target, CHECKPOINT)):
      return target
    floats = f'{target}.float' if quantize else target
    size = _parameters(config) * FLOAT_BYTES[dtype]
    _check_disk(cache, size * (5 if quantize else 4) // 4, target)
    if not os.path.isdir(os.path.join(floats, CHECKPOINT)):
      run(
        'converter',
        programs.CONVERTER,
        {'base': directory, 'pax': floats, 'dtype': dtype, 'resume': True},
      )
    if quantize:
      run(
        'quantizer',
        programs.QUANTIZER,
        {
          'input_dir': floats,
          'output_dir': target,
          'report': False,
          'resume': True,
        },
      )
      shutil.rmtree(floats)
  return target


def _stamp(directory: str, *choices: str) -> str:
  """Returns a hash that changes with the files of a directory."""
  found = [os.path.realpath(directory), *choices]
  for entry in sorted(os.scandir(directory), key=lambda entry: entry.name):
    if entry.is_file():
      stat = entry.stat()
      found.append(f'{entry.name} {stat.st_size} {stat.st_mtime_ns}')
  return hashlib.sha256('\n'.join(found).encode()).hexdigest()[:12]


def _check_disk(cache: str, needed: int, target: str) -> None:
  # The files of an interrupted conversion are reused, so they count as free.
  free = shutil.disk_usage(cache).free
  free += bytes_below(target) + bytes_below(f'{target}.float')
  if needed > free:
    raise programs.ServeError(
      f'The converted model takes {needed / GIB:.1f} GiB, and {cache} has'
      f' {free / GIB:.1f} GiB free. Free some space, or set a directory on'
      ' another disk with --cache_dir or $GPTJ_SAX_CACHE.'
    )


def bytes_below(directory: str) -> int:
  """Returns the total size of the files in a directory, in bytes."""
  return sum(
    os.path.getsize(os.path.join(folder, file))
    for folder, _, files in os.walk(directory)
    for file in files
  )


def _parameters(config: hf_config.HFConfig) -> int:
  """Returns the number of parameters of a GPT-J, without norms and biases."""
  width = config.model_dim
  block = 4 * width * width + 2 * width * config.hidden_dim
  return config.num_layers * block + 2 * config.vocab_size * width


def _float_type(parameters: int, quantize: bool) -> str:
  """Returns float32 if it fits into half of the memory, else bfloat16."""
  if quantize:
    return 'float32'  # The most exact form is quantized only once.
  room = psutil.virtual_memory().available / 2
  return 'float32' if parameters * 4 <= room else 'bfloat16'
