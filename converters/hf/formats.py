"""Recognizes models that cannot be read as they are, and names the remedy."""

import os
import re

from saxml_ext.pax import errors

_POINTER = b'version https://git-lfs'
_WEIGHTS = re.compile(
  r'(?P<stem>model|pytorch_model)(\.(?P<variant>[\w-]+?))?'
  r'(-(?P<number>\d+)-of-(?P<total>\d+))?\.(?P<suffix>safetensors|bin)'
)
# What to do with files of some names.
_HINTS = {
  '.gguf': 'Use the path of the GGUF file instead.',
  'adapter_config.json': (
    'Merge the LoRA adapter into its base model with "convert_hf --base=MODEL'
    ' --lora=ADAPTER --pax=NEW", and use the new directory.'
  ),
}
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


def contents(directory: str) -> str:
  """Returns sentences with the files of a directory and what to do with them.

  Args:
    directory: The directory.
  """
  names = sorted(os.listdir(directory)) if os.path.isdir(directory) else []
  listed = ', '.join(names[:_SHOWN]) + (', ...' if len(names) > _SHOWN else '')
  hints = [
    hint
    for ending, hint in _HINTS.items()
    if any(name.endswith(ending) for name in names)
  ]
  return ' '.join([f'It has {listed or "no files"}.', *hints])


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
  matches = map(_WEIGHTS.fullmatch, sorted(os.listdir(directory)))
  files = [m for m in matches if m and f'{m["stem"]}.{m["suffix"]}' == whole]
  names = [file[0] for file in files]
  numbers = [int(file['number'] or 1) for file in files]
  kinds = {(file['variant'], int(file['total'] or 1)) for file in files}
  if len(kinds) > 1 or any(numbers != [*range(1, n + 1)] for _, n in kinds):
    raise errors.CheckpointError(
      f'{directory} has weights in {", ".join(names[:_SHOWN])}, which are not'
      ' the complete files of one variant. Download the missing files, or keep'
      ' one variant.'
    )
  return names
