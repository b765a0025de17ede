"""Finds the checkpoint to quantize, and checks that it is a known model."""

import os
import re

from saxml_ext.common import errors as common_errors
from saxml_ext.common import user_path
from saxml_ext.engine import variables
from saxml_ext.families import all as families
from saxml_ext.families import family as family_lib
from saxml_ext.families import hf_config
from saxml_ext.pax import checkpoint
from saxml_ext.pax import description as description_lib
from saxml_ext.pax import errors

_STEP = re.compile(r'checkpoint_\d+')
_SHOWN = 3


def root_of(path: str) -> str:
  """Returns the directory that contains, or will contain, a checkpoint's step.

  The published tool takes `<dir>/checkpoint_00000000/state`. This program also
  accepts `<dir>` and `<dir>/checkpoint_00000000`, with the same meaning.
  """
  path = user_path.resolve(path).rstrip('/')
  if os.path.basename(path) == 'state':
    path = os.path.dirname(path)
  if _STEP.fullmatch(os.path.basename(path)):
    path = os.path.dirname(path)
  return path


def family_of(reader: checkpoint.Reader) -> family_lib.Family:
  """Returns the family of a checkpoint, by default GPT-J.

  Args:
    reader: The checkpoint. A file next to it may name another family.

  Raises:
    errors.CheckpointError: The file cannot be read, or names an unknown family.
  """
  try:
    return families.named(description_lib.read(reader.step_dir).family)
  except (OSError, common_errors.SaxError, errors.CheckpointError) as e:
    raise errors.CheckpointError(f'{reader.step_dir}: {e}') from e


def check_fits(table: str | None, reader: checkpoint.Reader) -> None:
  """Checks that a checkpoint contains exactly the variables of a table.

  Stock Sax's tool has a table of matrices for each kind of model. If the model
  does not match the table, that tool quantizes the matrices with known names
  and leaves all others in float. This check refuses such a checkpoint.

  Args:
    table: The value of --quantization_configs; None means the table of the
      checkpoint's family.
    reader: The float checkpoint.

  Raises:
    errors.CheckpointError: The table is for another family, variables are
      missing, or there are variables that are not in the table.
  """
  stored = {n.removesuffix(variables.SCALE_SUFFIX) for n in reader.specs}
  layers = set(map(variables.layer_of, stored)) - {None}
  family = family_of(reader)
  if table not in (None, family.name) or not family.tensors:
    raise errors.CheckpointError(
      f'{reader.step_dir} is a {family.title} model, which does not match'
      f' --quantization_configs={table}. Leave the flag out. There are tables'
      f' for {", ".join(families.convertible())}.'
    )
  # The names of variables depend only on the number of layers and on the form
  # of queries, keys and values.
  sizes = hf_config.HFConfig(len(layers) or 1, 1, 1, 1, 1)
  rows = family.table.entries(sizes, variables.is_joined(stored))
  expected = {row.path(layer) for row, layer in rows}
  problems = [
    f'it has {word}{_some(names)}'
    for word, names in (('no ', expected - stored), ('', stored - expected))
    if names
  ]
  if problems:
    raise errors.CheckpointError(
      f'{reader.step_dir} is not a complete {family.title} model:'
      f' {", and ".join(problems)}. Use a checkpoint that convert_hf wrote.'
    )


def _some(names: set[str]) -> str:
  first = ', '.join(sorted(names)[:_SHOWN])
  more = len(names) - _SHOWN
  return first + (f' and {more} more' if more > 0 else '')
