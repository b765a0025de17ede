"""Writes and reads whole PAX checkpoints, for tests of small models."""

from collections.abc import Iterable

import numpy as np

from saxml_ext.pax import checkpoint
from saxml_ext.pax import checkpoint_writer


def read_variables(
  path: str, names: Iterable[str] | None = None
) -> dict[str, np.ndarray]:
  """Reads variables into memory.

  Args:
    path: The checkpoint, see `checkpoint.find_step_dir`.
    names: The variables to read, such as `params.lm.final_ln.scale`; None means
      all variables.

  Returns:
    The arrays by name, in their stored types.

  Raises:
    errors.CheckpointError: The checkpoint or a variable is missing, incomplete
      or damaged.
  """
  reader = checkpoint.Reader(path)
  selected = reader.specs if names is None else names
  return {name: reader.read(name) for name in selected}


def write_checkpoint(
  path: str, variables: Iterable[tuple[str, np.ndarray]], step: int = 0
) -> str:
  """Writes a checkpoint and returns its step directory.

  Args:
    path: The directory that will contain `checkpoint_00000000`.
    variables: The names (without `mdl_vars.`) and arrays, consumed one at a
      time.
    step: The number of the step.

  Raises:
    errors.CheckpointError: The checkpoint cannot be written, see
      `checkpoint_writer.Writer`. No files stay in this case.
  """
  with checkpoint_writer.Writer(path, step) as writer:
    for name, value in variables:
      writer.add(name, value)
    return writer.commit()
