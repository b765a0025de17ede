"""Converts a Hugging Face directory to a PAX checkpoint."""

from collections.abc import Iterator, Sequence
from concurrent import futures
import dataclasses
import itertools
import math
import operator
import sys

import numpy as np

from converters.convert import fingerprint
from converters.convert import model_description
from converters.convert import model_source
from converters.convert import prefetch
from converters.convert import progress
from converters.convert import tokenizer_files
from saxml_ext.common import errors as common_errors
from saxml_ext.families import layout
from saxml_ext.pax import checkpoint_writer
from saxml_ext.pax import errors
from saxml_ext.pax import metadata

# Parts made in advance of the one being written.
_PREFETCH = 2
_CHECK_THREADS = 2


@dataclasses.dataclass(frozen=True)
class Converted:
  """What a conversion did.

  Attributes:
    step_dir: the step directory.
    num_bytes: size of all variables.
    resumed_bytes: of these, what an earlier run had written.
  """

  step_dir: str
  num_bytes: int
  resumed_bytes: int


def convert(
  base: str,
  pax: str,
  dtype: str,
  overwrite: bool = False,
  resume: bool = False,
) -> Converted:
  """Converts; variables are read, checked and written in parts.

  Args:
    base: Hugging Face directory.
    pax: output directory or URL, made if need be.
    dtype: a key of model_source.DTYPES.
    overwrite: replace the checkpoint that is there.
    resume: go on with what an interrupted run has left.

  Raises:
    errors.CheckpointError: the source is no sound model, or the output
      cannot be written. No checkpoint is there then, only in the second case
      what `resume` goes on with.
  """
  source = model_source.ModelSource(base)
  tokenizer = tokenizer_files.collect(base)
  made_of = fingerprint.source(source.checkpoint.files(), dtype=dtype)
  numpy_dtype = model_source.DTYPES[dtype]
  total = sum(_num_bytes(v, numpy_dtype) for v in source.variables)
  with checkpoint_writer.Writer(
    pax, overwrite=overwrite, resume=resume, source=made_of
  ) as writer:
    if writer.finished:
      return Converted(f'{pax.rstrip("/")}/checkpoint_00000000', total, total)
    if writer.removed:
      print(
        f'Removed {writer.removed}, left by an interrupted run; --resume '
        'would have gone on from there.',
        file=sys.stderr,
      )
    todo: Sequence[layout.Variable] = source.variables
    if resume:
      todo = _unfinished(writer, source.variables, numpy_dtype)
    done = total - sum(_num_bytes(v, numpy_dtype) for v in todo)
    with progress.Progress('Converting', total, done) as bar:
      _write(source, todo, numpy_dtype, writer, bar)
    _describe(source, pax, dtype)
    tokenizer_files.write(pax, tokenizer)
    return Converted(writer.commit(), total, done)


def _unfinished(
  writer: checkpoint_writer.Writer,
  variables: Sequence[layout.Variable],
  dtype: np.dtype,
) -> list[layout.Variable]:
  """The variables that an earlier run has not written, or not soundly."""
  journalled = [v for v in variables if v.name in writer.journalled]
  total = sum(_num_bytes(v, dtype) for v in journalled)
  with (
    progress.Progress('Checking', total) as bar,
    futures.ThreadPoolExecutor(_CHECK_THREADS) as pool,
  ):
    finished = set()
    sound = pool.map(writer.has, [v.name for v in journalled])
    for variable, is_sound in zip(journalled, sound):
      bar.advance(_num_bytes(variable, dtype), variable.name)
      if is_sound:
        finished.add(variable.name)
  return [v for v in variables if v.name not in finished]


def _write(
  source: model_source.ModelSource,
  variables: Sequence[layout.Variable],
  dtype: np.dtype,
  writer: checkpoint_writer.Writer,
  bar: progress.Progress,
) -> None:
  # Across variables, so that the end of one does not hold up the next.
  stream = prefetch.prefetch(_parts(source, variables, dtype), _PREFETCH)
  for variable, parts in itertools.groupby(stream, operator.itemgetter(0)):
    spec = metadata.ArraySpec(variable.shape, dtype.name)
    writer.add_parts(variable.name, spec, _counted(parts, variable.name, bar))


def _parts(
  source: model_source.ModelSource,
  variables: Sequence[layout.Variable],
  dtype: np.dtype,
) -> Iterator[tuple[layout.Variable, int, np.ndarray]]:
  for variable in variables:
    for begin, part in source.parts(variable, dtype):
      yield variable, begin, part


def _counted(
  parts: Iterator[tuple[layout.Variable, int, np.ndarray]],
  name: str,
  bar: progress.Progress,
) -> Iterator[tuple[int, np.ndarray]]:
  for _, begin, part in parts:
    yield begin, part
    bar.advance(part.nbytes, name)


def _describe(source: model_source.ModelSource, pax: str, dtype: str) -> None:
  hf = source.checkpoint
  try:
    model_description.write(pax, hf.family, hf.config, source.shape, dtype)
  except OSError as e:
    raise errors.UnwritableError(
      f'{e.filename} cannot be written: {e.strerror}'
    ) from e
  except common_errors.SaxError as e:
    raise errors.UnwritableError(str(e)) from e


def _num_bytes(variable: layout.Variable, dtype: np.dtype) -> int:
  return math.prod(variable.shape) * dtype.itemsize
