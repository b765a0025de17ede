"""Defines flags and output of programs that record a reference's answers."""

from absl import flags
import torch
import transformers

from saxml_ext.common import files
from saxml_ext.common import user_path

_OUTPUT = flags.DEFINE_string(
  'output', None, 'The JSON file to write. Default: only print the answers.'
)
COUNT = flags.DEFINE_integer(
  'count', 0, 'The number of samples from the start; 0 means all.', 0
)

IMPLEMENTATION = (
  f'transformers {transformers.__version__}, torch {torch.__version__},'
  ' float32, batch 1'
)


def write(text: str) -> None:
  """Writes the text to the file that --output names, if it is set.

  Raises:
    SystemExit: The file cannot be written.
  """
  if not _OUTPUT.value:
    return
  try:
    with files.replacing(user_path.resolve(_OUTPUT.value)) as file:
      file.write(text)
  except OSError as error:
    raise SystemExit(
      f'reference: --output cannot be written: {error}'
    ) from error
