"""Makes an INT8 PAX checkpoint from a PAX checkpoint, layer by layer."""

from collections.abc import Callable, Iterator, Mapping, Sequence
import dataclasses
import os

import numpy as np

from converters.convert import pipeline
from converters.hf import tokenizer_files
from converters.quantize import input_checkpoint
from converters.quantize import int8_matrix
from converters.quantize import model_input
from converters.quantize import provenance
from converters.quantize import rounding
from converters.quantize import smoothing
from saxml_ext.common import storage
from saxml_ext.engine import architecture
from saxml_ext.engine import variables as variables_lib
from saxml_ext.pax import checkpoint
from saxml_ext.pax import checkpoint_writer
from saxml_ext.pax import description
from saxml_ext.pax import errors
from saxml_ext.pax import manifest

# A function from the variables of a layer to its input statistics, by field of
# `engine.model.Taps`.
Calibration = Callable[
  [Mapping[str, np.ndarray]], Mapping[str, int8_matrix.InputStats]
]

_Reader = checkpoint.Reader | model_input.ModelInput
_FLOATS = ('float32', 'bfloat16', 'float16')


def quantize(
  source: str | model_input.ModelInput,
  pax: str,
  record: provenance.Record,
  calibration: Calibration | None = None,
  overwrite: bool = False,
  resume: bool = False,
  measure: bool = False,
  compress: bool = True,
) -> str:
  """Quantizes a checkpoint; returns the path of the new step directory.

  Args:
    source: The float checkpoint, see `checkpoint.find_step_dir`, or a model
      that is converted at the same time.
    pax: The output directory or URL, which is created if it does not exist.
    record: The settings and the calibration texts. The written file also has
      the exponents of smoothing and the measured errors.
    calibration: A function that returns the input statistics of a layer, given
      its variables. It is called for each layer in order, see
      `calibration_run`. GPTQ and smoothing with a strength above 0 require it.
    overwrite: True to replace an existing checkpoint.
    resume: True to continue an interrupted run.
    measure: True to measure the error of every matrix for the report.
    compress: True to compress the variables.

  Raises:
    errors.CheckpointError: The source is not a float model, or the output
      cannot be written.
  """
  options = record.options
  reader = checkpoint.Reader(source) if isinstance(source, str) else source
  groups = _groups(reader)
  exponents: list[smoothing.Exponents] = []
  with checkpoint_writer.Writer(
    pax,
    overwrite=overwrite,
    resume=resume,
    source=_source(reader, record),
    compress=compress,
  ) as writer:
    if writer.finished:
      return checkpoint.find_step_dir(pax)
    output = _Output(writer, reader, options, measure)
    done = {name for name in reader.specs if output.has(name)}
    sizes = {n: spec.num_bytes for n, spec in reader.specs.items()}
    before = sum(sizes[name] for name in done)
    results = (
      (name, output.quantized(name, value, stats))
      for name, value, stats in _values(
        reader, groups, options.smoothing, calibration, exponents
      )
      if name not in done
    )
    # The next matrix is rounded while the last one is compressed and written.
    with pipeline.Progress('Quantizing', sum(sizes.values()), before) as bar:
      for name, arrays in pipeline.prefetch(results, 1):
        output.write(name, arrays)
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
  """Writes the variables of one INT8 checkpoint."""

  def __init__(
    self,
    writer: checkpoint_writer.Writer,
    reader: _Reader,
    options: provenance.Options,
    measure: bool,
  ):
    """Starts the output.

    Args:
      writer: The writer of the checkpoint.
      reader: The float checkpoint.
      options: The settings of the quantization.
      measure: True to measure the error of each matrix. The writer's journal
        stores it, so a resumed run does not read finished matrices again.
    """
    self._writer = writer
    self._reader = reader
    self._options = options
    self._measure = measure
    self._errors: dict[str, int8_matrix.MatrixError] = {}

  @property
  def errors(self) -> tuple[int8_matrix.MatrixError, ...]:
    """The errors of all matrices so far, in the order of the report."""
    names = sorted(self._errors, key=int8_matrix.report_order)
    return tuple(self._errors[name] for name in names)

  def has(self, name: str) -> bool:
    """Returns True if an earlier run has completely processed a variable."""
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

  def quantized(
    self,
    name: str,
    value: np.ndarray | None,
    stats: Mapping[str, int8_matrix.InputStats] | None,
  ) -> dict[str, np.ndarray]:
    """Returns the arrays to write for a variable; {} means that of the source.

    Args:
      name: The name of the variable; a matrix becomes codes and scales.
      value: The value to write; None means the value of the source.
      stats: The input statistics of the variable's layer.
    """
    summed = self._summed(name)
    if summed is None:
      return {} if value is None else {name: value}
    own_scale = self._own_scale(name, summed) if value is None else None
    value = self._reader.read(name) if value is None else value
    rows = int8_matrix.as_rows(value.astype(np.float32, copy=False), summed)
    inputs = (stats or {}).get(int8_matrix.inputs_of(name) or '')
    if own_scale is None:
      codes, scale = _quantized(name, rows, self._options, inputs)
    else:
      codes, scale = rounding.restored_codes(rows, own_scale), own_scale
    codes = int8_matrix.from_rows(codes, value.shape, summed)
    scale = scale.reshape(int8_matrix.scale_shape(value.shape, summed))
    if self._measure:
      self._errors[name] = int8_matrix.measure(
        name, value, codes, scale, self._options.bits
      )
    return {name: codes, int8_matrix.scale_name(name): scale}

  def _own_scale(self, name: str, summed: Sequence[int]) -> np.ndarray | None:
    """Returns the scales [outputs] of a source that is int8, or None.

    Its codes and scales are kept, unless the options ask for others.

    Args:
      name: The name of the variable.
      summed: The dims that products sum over.
    """
    options = self._options
    if (
      options.bits != 8
      or options.clipping
      or isinstance(self._reader, checkpoint.Reader)
    ):
      return None
    scales = self._reader.read_scales(name)
    if scales is None:
      return None
    rows = int8_matrix.as_rows(scales, summed)
    # All values of an output must have one scale, and 0 does not keep codes.
    if (rows != rows[:, :1]).any() or not (rows[:, 0] > 0).all():
      return None
    return np.ascontiguousarray(rows[:, 0])

  def write(self, name: str, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes the arrays that `quantized` returned for a variable."""
    for key, array in arrays.items():
      # A killed run may have written only the codes of a matrix.
      if not self._writer.has(key):
        error = self._errors.get(key)
        self._writer.add(key, array, error and dataclasses.asdict(error))
    if not arrays:
      spec, rows = self._reader.specs[name], self._reader.read_rows(name)
      self._writer.add_parts(name, spec, rows)

  def _summed(self, name: str) -> tuple[int, ...] | None:
    return int8_matrix.summed_dims(name, self._options.softmax)


def _values(
  reader: _Reader,
  groups: Sequence[tuple[int | None, list[str]]],
  strength: float | None,
  calibration: Calibration | None,
  exponents: list[smoothing.Exponents],
) -> Iterator[
  tuple[str, np.ndarray | None, Mapping[str, int8_matrix.InputStats] | None]
]:
  """Yields the name, the smoothed value and the statistics of each variable.

  Args:
    reader: The float variables.
    groups: The names of the variables by layer, the layers in order.
    strength: The strength of the smoothing; None for no smoothing.
    calibration: The function that returns the statistics of a layer.
    exponents: The list to which the exponents of each layer are appended.

  Yields:
    The name; the value, or None for that of the source; the statistics of the
    variable's layer, or None.
  """
  norms = strength is not None and _smooths_norms(reader)
  for layer, names in groups:
    variables, stats = {}, None
    if layer is not None and (calibration or strength is not None):
      variables = {name: reader.read(name) for name in names}
      stats = calibration(variables) if calibration else None
      if strength is not None:
        chosen = smoothing.choose(variables, strength, stats, norms)
        variables = smoothing.apply(variables, chosen)
        stats = stats and smoothing.apply_to_stats(stats, chosen)
        exponents.append(chosen)
    for name in names:
      yield name, variables.pop(name, None), stats


def _smooths_norms(reader: _Reader) -> bool:
  """Returns True if the scales of norms can be changed; see `smoothing.py`."""
  if isinstance(reader, model_input.ModelInput):
    family = reader.family
  else:
    family = input_checkpoint.family_of(reader)
  before = family.architecture.norm_policy == architecture.PRE
  return before and family.ln_direct_scale


def _quantized(
  name: str,
  rows: np.ndarray,
  options: provenance.Options,
  inputs: int8_matrix.InputStats | None,
) -> tuple[np.ndarray, np.ndarray]:
  """Returns codes [outputs, inputs] int8 and scales [outputs] of a matrix."""
  largest = rounding.limit(options.bits)
  if options.clipping:
    scale = rounding.clipped_scales(
      rows, largest, inputs.mean_square if inputs else None
    )
  else:
    scale = rounding.scales(rows, largest)
  if not np.isfinite(scale).all():
    raise errors.CheckpointError(
      f'variable {name} has values that are not finite, so it cannot be'
      ' quantized. Check the source.'
    )
  if inputs and inputs.hessian is not None:
    codes = rounding.gptq_codes(rows, scale, largest, inputs.hessian)
  else:
    codes = rounding.codes(rows, scale, largest)
  return codes, scale


def _source(reader: _Reader, record: provenance.Record) -> manifest.Source:
  """Returns the identity of a quantization; a resumed run must match it."""
  if isinstance(reader, model_input.ModelInput):
    return reader.identity(record.document())
  files = {
    name: reader.manifest[name].crc32 if name in reader.manifest else str(spec)
    for name, spec in reader.specs.items()
  }
  # A source without checksums is identified by its modification time.
  stamp = ''
  if not reader.manifest and not storage.is_url(reader.step_dir):
    stamp = str(os.stat(reader.step_dir).st_mtime_ns)
  return manifest.Source(files, record.document(), stamp)


def _groups(reader: _Reader) -> list[tuple[int | None, list[str]]]:
  """Returns the names of variables, grouped by layer, the layers in order."""
  quantized = [
    n for n in reader.specs if int8_matrix.summed_dims(n) is not None
  ]
  for name in quantized:
    if reader.specs[name].dtype not in _FLOATS:
      raise errors.CheckpointError(
        f'{reader.step_dir}: {name} is {reader.specs[name]}. Expected a float'
        ' type, because a quantized checkpoint cannot be quantized again.'
      )
  if not quantized:
    raise errors.CheckpointError(
      f'{reader.step_dir} has no matrix that can be quantized. Use a checkpoint'
      ' that convert_hf wrote.'
    )
  layers: dict[int, list[str]] = {}
  singles = []
  for name in reader.specs:
    layer = variables_lib.layer_of(name)
    if layer is not None:
      layers.setdefault(layer, []).append(name)
    else:
      singles.append((None, [name]))
  return singles + sorted(layers.items())


def _copy_description(reader: _Reader, pax: str) -> None:
  """Copies gptj_config.json and the tokenizer if the source has them."""
  if isinstance(reader, model_input.ModelInput):
    reader.write_companions(pax)
    return
  path = f'{reader.directory}/{description.FILE_NAME}'
  with errors.reading(path):
    data = storage.read_bytes(path) if storage.exists(path) else None
  if data is not None:
    provenance.write_file(f'{pax}/{description.FILE_NAME}', data)
  tokenizer_files.write(pax, tokenizer_files.collect(reader.directory))
