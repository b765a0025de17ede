"""Converts a Hugging Face or Meta checkpoint to a PAX checkpoint."""

from collections.abc import Iterable, Sequence
from concurrent import futures
import dataclasses
import hashlib
import itertools
import operator
import os
import sys

from converters.convert import model_source
from converters.convert import pipeline
from converters.hf import checkpoint
from converters.hf import tokenizer_files
from saxml_ext.families import family as family_lib
from saxml_ext.families import hf_config
from saxml_ext.families import layout
from saxml_ext.pax import checkpoint_writer
from saxml_ext.pax import description
from saxml_ext.pax import errors
from saxml_ext.pax import manifest

_SAMPLES = 64
_SAMPLE_BYTES = 1 << 16
# The number of parts to prepare while another part is written.
_PREFETCH = 2
_CHECK_THREADS = 2


def _fingerprint(path: str) -> str:
  """Returns the SHA-256 of a file's size and of 64 samples of 64 KiB.

  The samples include the first and the last bytes of the file. The file formats
  keep the descriptions of tensors there. Changes between the samples are not
  detected, which saves reading 12 GB. Use --verify for a full comparison.

  Args:
    path: The file.

  Raises:
    OSError: The file cannot be read.
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
  """Returns the record of source files that a checkpoint's manifest keeps.

  Args:
    paths: The files of the source.
    **options: The options of the conversion, which the record includes.

  Raises:
    errors.CheckpointError: A file cannot be read.
  """
  files, stamps = {}, []
  for path in paths:
    with errors.reading(path):
      files[os.path.basename(path)] = _fingerprint(path)
      stamps.append(f'{path} {os.stat(path).st_mtime_ns}')
  return manifest.Source(files, options, '\n'.join(stamps))


@dataclasses.dataclass(frozen=True)
class Converted:
  """The result of a conversion.

  Attributes:
    step_dir: The step directory.
    num_bytes: The size of all variables.
    resumed_bytes: The part of `num_bytes` that an earlier run had written.
  """

  step_dir: str
  num_bytes: int
  resumed_bytes: int


def convert(
  base: str | checkpoint.Checkpoint,
  pax: str,
  dtype: str,
  overwrite: bool = False,
  resume: bool = False,
  compress: bool = True,
) -> Converted:
  """Converts a checkpoint; variables are read, checked and written in parts.

  Args:
    base: The Hugging Face directory, or an open checkpoint.
    pax: The output directory or URL, which is created if it does not exist.
    dtype: A key of model_source.DTYPES.
    overwrite: True to replace an existing checkpoint.
    resume: True to continue an interrupted run.
    compress: True to compress the variables.

  Raises:
    errors.CheckpointError: The source is not a valid model, or the output
      cannot be written. No checkpoint is left in either case. If the output
      cannot be written, a later run with `resume` can continue.
  """
  source = model_source.ModelSource(base)
  tokenizer = tokenizer_files.collect(source.checkpoint.directory)
  record = source_record(source.checkpoint.files(), dtype=dtype)
  total = _num_bytes(source.variables, dtype)
  with checkpoint_writer.Writer(
    pax, overwrite=overwrite, resume=resume, source=record, compress=compress
  ) as writer:
    if writer.finished:
      return Converted(f'{pax.rstrip("/")}/checkpoint_00000000', total, total)
    if writer.removed:
      print(
        f'Removed {writer.removed}, the files of an interrupted run. Use'
        ' --resume to continue a run instead.',
        file=sys.stderr,
      )
    todo: Sequence[layout.Variable] = source.variables
    if resume:
      todo = _unfinished(writer, source.variables, dtype)
    done = total - _num_bytes(todo, dtype)
    with pipeline.Progress('Converting', total, done) as bar:
      _write(source, todo, dtype, writer, bar)
    write_companions(source, dtype, pax, tokenizer)
    return Converted(writer.commit(), total, done)


def _unfinished(
  writer: checkpoint_writer.Writer,
  variables: Sequence[layout.Variable],
  dtype: str,
) -> list[layout.Variable]:
  """Returns the variables that an earlier run has not written correctly."""
  journalled = [v for v in variables if v.name in writer.journalled]
  with (
    pipeline.Progress('Checking', _num_bytes(journalled, dtype)) as bar,
    futures.ThreadPoolExecutor(_CHECK_THREADS) as pool,
  ):
    finished = set()
    results = pool.map(writer.has, [v.name for v in journalled])
    for variable, is_intact in zip(journalled, results):
      bar.advance(variable.spec(dtype).num_bytes, variable.name)
      if is_intact:
        finished.add(variable.name)
  return [v for v in variables if v.name not in finished]


def _write(
  source: model_source.ModelSource,
  variables: Sequence[layout.Variable],
  dtype: str,
  writer: checkpoint_writer.Writer,
  bar: pipeline.Progress,
) -> None:
  parts = (
    (variable, part)
    for variable in variables
    for part in source.parts(variable, model_source.DTYPES[dtype])
  )
  # The prefetch crosses variables, so the end of one does not delay the next.
  stream = pipeline.prefetch(parts, _PREFETCH)
  for variable, group in itertools.groupby(stream, operator.itemgetter(0)):
    counted = bar.count((part for _, part in group), variable.name)
    writer.add_parts(variable.name, variable.spec(dtype), counted)


def write_companions(
  source: model_source.ModelSource,
  dtype: str,
  pax: str,
  tokenizer: dict[str, bytes],
) -> None:
  """Writes the files beside a checkpoint: its description and its tokenizer.

  Args:
    source: The model.
    dtype: The type of the variables.
    pax: The output directory or URL.
    tokenizer: The contents of the tokenizer's files by name.

  Raises:
    errors.UnwritableError: A file cannot be written.
  """
  with errors.writing(f'{pax}/{description.FILE_NAME}'):
    description.write(
      pax, describe(source.config, source.checkpoint.family, dtype)
    )
  tokenizer_files.write(pax, tokenizer)


def describe(
  config: hf_config.HFConfig, family: family_lib.Family, dtype: str
) -> description.Description:
  """Returns the contents of gptj_config.json of a converted model.

  Args:
    config: The sizes of the model.
    family: Its family.
    dtype: The type of the variables.
  """
  same = {field.name for field in dataclasses.fields(config)} & {
    field.name for field in dataclasses.fields(description.Description)
  }
  values = {name: getattr(config, name) for name in same}
  stops = config.stop_ids
  values |= {
    'num_kv_heads': config.num_kv_heads or None,
    'stop_ids': list(stops) if len(stops) > 1 else None,
    'pad_id': config.eos_id if config.pad_id is None else config.pad_id,
  }
  return description.Description(
    **values,
    family=family.name,
    head_dim=config.head_dim,
    dtype=dtype,
    num_parameters=family.num_parameters(config),
  )


def _num_bytes(variables: Iterable[layout.Variable], dtype: str) -> int:
  return sum(variable.spec(dtype).num_bytes for variable in variables)
