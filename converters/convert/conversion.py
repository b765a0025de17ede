"""Converts a Hugging Face directory to a PAX checkpoint."""

from collections.abc import Iterable, Iterator, Sequence
from concurrent import futures
import dataclasses
import hashlib
import itertools
import math
import operator
import os
import sys

import numpy as np

from converters.convert import model_source
from converters.convert import prefetch
from converters.convert import progress
from converters.convert import tokenizer_files
from saxml_ext.common import errors as common_errors
from saxml_ext.families import family as family_lib
from saxml_ext.families import hf_config
from saxml_ext.families import layout
from saxml_ext.pax import checkpoint_writer
from saxml_ext.pax import description
from saxml_ext.pax import errors
from saxml_ext.pax import manifest
from saxml_ext.pax import metadata

_SAMPLES = 64
_SAMPLE_BYTES = 1 << 16


def _fingerprint(path: str) -> str:
  """SHA-256 of a file's size and of 64 pieces of 64 KiB spread over it.

  The first and the last are the file's own ends, where the formats keep what
  they say of its tensors. Numbers changed between the pieces go unnoticed, so
  that 12 GB take no minute; whoever must know compares with --verify.

  Raises:
    OSError: the file cannot be read.
  """
  digest = hashlib.sha256()
  with open(path, 'rb') as f:
    size = os.fstat(f.fileno()).st_size
    digest.update(size.to_bytes(8, 'little'))
    last = max(0, size - _SAMPLE_BYTES)
    for offset in sorted({last * i // (_SAMPLES - 1) for i in range(_SAMPLES)}):
      digest.update(os.pread(f.fileno(), _SAMPLE_BYTES, offset))
  return digest.hexdigest()


def source_record(paths: Iterable[str], **options) -> manifest.Source:
  """The source that these files are, for a writer and its manifest.

  Raises:
    errors.CheckpointError: a file cannot be read.
  """
  files, stamps = {}, []
  for path in paths:
    try:
      files[os.path.basename(path)] = _fingerprint(path)
      stamps.append(f'{path} {os.stat(path).st_mtime_ns}')
    except OSError as e:
      raise errors.CheckpointError(
        f'{path} cannot be read: {e.strerror}'
      ) from e
  return manifest.Source(files, options, '\n'.join(stamps))


def _description(
  family: family_lib.Family,
  config: hf_config.HFConfig,
  shape: layout.ModelShape,
  dtype: str,
) -> description.Description:
  """Returns what gptj_config.json says of a model.

  Args:
    family: The family of the model.
    config: of the source.
    shape: sizes of the PAX model.
    dtype: name of the type of its variables.
  """
  pad, stops = config.pad_token_id, config.stop_token_ids
  return description.Description(
    family=family.name,
    rotary_base=config.rotary_base,
    rotary_dim=config.rotary_dim,
    ln_epsilon=config.layer_norm_epsilon,
    max_positions=config.max_positions,
    bos_id=config.bos_token_id,
    eos_id=config.eos_token_id,
    stop_ids=list(stops) if len(stops) > 1 else None,
    pad_id=config.eos_token_id if pad is None else pad,
    num_layers=shape.num_layers,
    model_dim=shape.model_dim,
    num_heads=shape.num_heads,
    num_kv_heads=shape.num_kv_heads or None,
    head_dim=shape.head_dim,
    hidden_dim=shape.hidden_dim,
    vocab_size=shape.vocab_size,
    dtype=dtype,
  )


def _write_description(
  directory: str,
  family: family_lib.Family,
  config: hf_config.HFConfig,
  shape: layout.ModelShape,
  dtype: str,
) -> None:
  """Writes gptj_config.json.

  Args:
    directory: Where `checkpoint_00000000` is going to be, local or a URL.
    family: The family of the model.
    config: What the source's config.json says.
    shape: Sizes of the PAX model.
    dtype: Name of the type of its variables.

  Raises:
    OSError, saxml_ext.common.errors.SaxError: The file cannot be written.
  """
  description.write(directory, _description(family, config, shape, dtype))


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
  made_of = source_record(source.checkpoint.files(), dtype=dtype)
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
    _write_description(pax, hf.family, hf.config, source.shape, dtype)
  except OSError as e:
    raise errors.UnwritableError(
      f'{e.filename} cannot be written: {e.strerror}'
    ) from e
  except common_errors.SaxError as e:
    raise errors.UnwritableError(str(e)) from e


def _num_bytes(variable: layout.Variable, dtype: np.dtype) -> int:
  return math.prod(variable.shape) * dtype.itemsize
