"""Conversion of a Hugging Face GPT-J directory to a PAX checkpoint."""

import math

import numpy as np

from converters import gptj_description
from converters import gptj_source
from converters import progress
from saxml_ext.pax import checkpoint_writer
from saxml_ext.pax import errors
from saxml_ext.pax import layout


def convert(base: str, pax: str, dtype: str, overwrite: bool = False) -> str:
  """Converts and returns the step directory that was written.

  Args:
    base: Hugging Face directory.
    pax: output directory, made if need be.
    dtype: a key of gptj_source.DTYPES.
    overwrite: replace the checkpoint that is there.

  Raises:
    errors.CheckpointError: the source is not a sound GPT-J, or the output
      cannot be written. No checkpoint is left behind then.
  """
  source = gptj_source.GPTJSource(base)
  numpy_dtype = gptj_source.DTYPES[dtype]
  sizes = [_num_bytes(v, numpy_dtype) for v in source.variables]
  with (
      checkpoint_writer.Writer(pax, overwrite=overwrite) as writer,
      progress.Progress('Converting', sum(sizes)) as bar,
  ):
    for variable, size in zip(source.variables, sizes):
      writer.add(variable.name, source.build(variable, numpy_dtype))
      bar.advance(size, variable.name)
    try:
      gptj_description.write(
          pax, source.checkpoint.config, source.shape, dtype, base
      )
    except OSError as e:
      raise errors.CheckpointError(
          f'{e.filename} cannot be read or written: {e.strerror}'
      ) from e
    return writer.commit()


def _num_bytes(variable: layout.Variable, dtype: np.dtype) -> int:
  return math.prod(variable.shape) * dtype.itemsize
