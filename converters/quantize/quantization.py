"""Makes an INT8 PAX checkpoint of a PAX checkpoint, one layer at a time."""

from collections.abc import Callable, Mapping
import dataclasses
import os

import numpy as np

from converters.convert import pipeline
from converters.hf import tokenizer_files
from converters.quantize import int8_matrix
from converters.quantize import provenance
from converters.quantize import rounding
from converters.quantize import smoothing
from saxml_ext.common import storage
from saxml_ext.engine import variables as variables_lib
from saxml_ext.pax import checkpoint
from saxml_ext.pax import checkpoint_writer
from saxml_ext.pax import description
from saxml_ext.pax import errors
from saxml_ext.pax import manifest

# From a layer's variables to statistics by the fields of
# `engine.model.Taps`.
Calibration = Callable[
  [Mapping[str, np.ndarray]], Mapping[str, int8_matrix.InputStats]
]

_FLOATS = ('float32', 'bfloat16', 'float16')


def quantize(
  source: str,
  pax: str,
  record: provenance.Record,
  calibration: Calibration | None = None,
  overwrite: bool = False,
  resume: bool = False,
  measure: bool = False,
) -> str:
  """Quantizes and returns the step directory that was written.

  Args:
    source: The float checkpoint, see `checkpoint.find_step_dir`.
    pax: The output directory or URL, made if need be.
    record: The settings and the calibration texts; smoothing adds its
      exponents, measuring its errors.
    calibration: A function from the variables of each layer, in turn, to the
      statistics of its inputs, see `calibration_run`. GPTQ and smoothing of a
      strength above 0 need it.
    overwrite: Whether a checkpoint that is there is replaced.
    resume: Whether to go on with what an earlier run has left.
    measure: Whether the error of every matrix is measured, for the report.

  Raises:
    errors.CheckpointError: The source is no float model, or the output cannot
      be written.
  """
  options = record.options
  reader = checkpoint.Reader(source)
  groups = _groups(reader)
  exponents = []
  with checkpoint_writer.Writer(
    pax,
    overwrite=overwrite,
    resume=resume,
    source=_source(reader, record),
  ) as writer:
    if writer.finished:
      return checkpoint.find_step_dir(pax)
    output = _Output(writer, reader, options, measure)
    done = {name for name in reader.specs if output.has(name)}
    sizes = {n: spec.num_bytes for n, spec in reader.specs.items()}
    before = sum(sizes[name] for name in done)
    with pipeline.Progress('Quantizing', sum(sizes.values()), before) as bar:
      for layer, names in groups:
        variables, stats = {}, None
        if layer is not None and (calibration or options.smoothing is not None):
          variables = {name: reader.read(name) for name in names}
          stats = calibration(variables) if calibration else None
          if options.smoothing is not None:
            chosen = smoothing.choose(variables, options.smoothing, stats)
            variables = smoothing.apply(variables, chosen)
            stats = stats and smoothing.apply_to_stats(stats, chosen)
            exponents.append(chosen)
        for name in names:
          value = variables.pop(name, None)
          if name not in done:
            output.write(name, value, stats)
            bar.advance(sizes[name], name)
    with errors.writing(pax):
      for name in provenance.REPORTS:
        storage.delete(os.path.join(pax, name))
    _copy_description(reader, pax)
    record = dataclasses.replace(
      record, exponents=tuple(exponents), errors=output.errors
    )
    provenance.write(pax, record)
    return writer.commit()


class _Output:
  """One INT8 checkpoint on its way to the disk."""

  def __init__(
    self,
    writer: checkpoint_writer.Writer,
    reader: checkpoint.Reader,
    options: provenance.Options,
    measure: bool,
  ):
    """Starts.

    Args:
      writer: Where the variables go.
      reader: The float checkpoint.
      options: How matrices are quantized.
      measure: Whether the error of each matrix is measured. The writer's
        journal keeps it, so that no matrix is read again after a kill.
    """
    self._writer = writer
    self._reader = reader
    self._options = options
    self._measure = measure
    self._errors: dict[str, int8_matrix.MatrixError] = {}

  @property
  def errors(self) -> tuple[int8_matrix.MatrixError, ...]:
    """Errors of all matrices so far, in the order of the report."""
    names = sorted(self._errors, key=int8_matrix.report_order)
    return tuple(self._errors[name] for name in names)

  def has(self, name: str) -> bool:
    """Whether an earlier run has done all that is to be done of a variable."""
    if self._summed(name) is None:
      return self._writer.has(name)
    note = self._writer.note(name)
    if self._measure and note is None:
      return False
    scale = int8_matrix.scale_name(name)
    done = self._writer.has(name) and self._writer.has(scale)
    if done and self._measure:
      self._errors[name] = int8_matrix.MatrixError(**note)
    return done

  def write(
    self,
    name: str,
    value: np.ndarray | None,
    stats: Mapping[str, int8_matrix.InputStats] | None,
  ) -> None:
    """Writes what is made of one variable.

    Args:
      name: The variable's name.
      value: What to write; None stands for what the source has.
      stats: Statistics of the inputs of its layer.
    """
    summed = self._summed(name)
    if summed is not None:
      value = self._reader.read(name) if value is None else value
      self._write_matrix(name, value, summed, stats)
    elif value is not None:
      self._writer.add(name, value)
    else:
      spec, rows = self._reader.specs[name], self._reader.read_rows(name)
      self._writer.add_parts(name, spec, rows)

  def _summed(self, name: str) -> tuple[int, ...] | None:
    return int8_matrix.summed_dims(name, self._options.softmax)

  def _write_matrix(self, name, value, summed, stats) -> None:
    shape = value.shape
    rows = int8_matrix.as_rows(value.astype(np.float32, copy=False), summed)
    inputs = (stats or {}).get(int8_matrix.inputs_of(name))
    codes, scale = _quantized(name, rows, self._options, inputs)
    codes = int8_matrix.from_rows(codes, shape, summed)
    scale = scale.reshape(int8_matrix.scale_shape(shape, summed))
    note = None
    if self._measure:
      error = int8_matrix.measure(name, value, codes, scale, self._options.bits)
      self._errors[name] = error
      note = dataclasses.asdict(error)
    # A run that was killed may have finished one of the two.
    if not self._writer.has(name):
      self._writer.add(name, codes, note)
    if not self._writer.has(int8_matrix.scale_name(name)):
      self._writer.add(int8_matrix.scale_name(name), scale)


def _quantized(
  name: str,
  rows: np.ndarray,
  options: provenance.Options,
  inputs: int8_matrix.InputStats | None,
) -> tuple[np.ndarray, np.ndarray]:
  """Codes [outputs, inputs] int8 and scales [outputs] of a matrix."""
  largest = rounding.limit(options.bits)
  if options.clipping:
    scale = rounding.clipped_scales(
      rows, largest, inputs.mean_square if inputs else None
    )
  else:
    scale = rounding.scales(rows, largest)
  if not np.isfinite(scale).all():
    raise errors.CheckpointError(
      f'variable {name} has values that are not finite; there are no codes '
      'for them: check the source'
    )
  if inputs and inputs.hessian is not None:
    codes = rounding.gptq_codes(rows, scale, largest, inputs.hessian)
  else:
    codes = rounding.codes(rows, scale, largest)
  return codes, scale


def _source(
  reader: checkpoint.Reader, record: provenance.Record
) -> manifest.Source:
  """What tells one quantization from another, to resume it or not."""
  files = {
    name: reader.manifest[name].crc32 if name in reader.manifest else str(spec)
    for name, spec in reader.specs.items()
  }
  # Without checksums of its own, a source is known by when it was written.
  stamp = ''
  if not reader.manifest and not storage.is_url(reader.step_dir):
    stamp = str(os.stat(reader.step_dir).st_mtime_ns)
  return manifest.Source(files, record.document(), stamp)


def _groups(
  reader: checkpoint.Reader,
) -> list[tuple[int | None, list[str]]]:
  """Returns names of variables, those of a layer together, layers in order."""
  quantized = [
    n for n in reader.specs if int8_matrix.summed_dims(n) is not None
  ]
  for name in quantized:
    if reader.specs[name].dtype not in _FLOATS:
      raise errors.CheckpointError(
        f'{reader.step_dir}: {name} is {reader.specs[name]}; expected a float'
        ' type: a quantized checkpoint cannot be quantized again'
      )
  if not quantized:
    raise errors.CheckpointError(
      f'{reader.step_dir} has no matrix that can be quantized; expected what'
      ' convert_hf writes'
    )
  layers: dict[int, list[str]] = {}
  others = []
  for name in reader.specs:
    layer = variables_lib.layer_of(name)
    if layer is not None:
      layers.setdefault(layer, []).append(name)
    else:
      others.append((None, [name]))
  return others + sorted(layers.items())


def _copy_description(reader: checkpoint.Reader, pax: str) -> None:
  """Carries gptj_config.json and the tokenizer along, where there are any."""
  path = f'{reader.directory}/{description.FILE_NAME}'
  with errors.reading(path):
    data = storage.read_bytes(path) if storage.exists(path) else None
  if data is not None:
    provenance.write_file(f'{pax}/{description.FILE_NAME}', data)
  tokenizer_files.write(pax, tokenizer_files.collect(reader.directory))
