"""Makes an INT8 PAX checkpoint of a PAX checkpoint, one layer at a time."""

from collections.abc import Callable, Mapping
import dataclasses
import os
import re

import numpy as np

from converters import gptj_description
from converters import progress
from converters import quantization_files
from converters import quantization_inputs
from converters import quantization_options
from converters import quantization_record
from converters import quantization_smoothing
from converters import quantized_matrices
from converters import quantized_rows
from converters import quantized_rows_gptq
from saxml_ext.common import errors as common_errors
from saxml_ext.common import storage
from saxml_ext.pax import checkpoint
from saxml_ext.pax import checkpoint_writer
from saxml_ext.pax import chunks
from saxml_ext.pax import errors
from saxml_ext.pax import manifest

# From a layer's variables to statistics by the fields of
# `quantization_layers.Inputs`.
Calibration = Callable[
    [Mapping[str, np.ndarray]], Mapping[str, quantization_inputs.InputStats]
]

_FLOATS = ('float32', 'bfloat16', 'float16')
_LAYER = re.compile(r'(?:.*\.)?x_layers_(\d+)\.')


def quantize(
    source: str,
    pax: str,
    record: quantization_record.Record,
    calibration: Calibration | None = None,
    overwrite: bool = False,
    resume: bool = False,
) -> str:
  """Quantizes and returns the step directory that was written.

  Args:
    source: float checkpoint, see `checkpoint.find_step_dir`.
    pax: output directory, made if need be.
    record: how, and on what texts; smoothing adds its exponents.
    calibration: from the variables of each layer, in turn, to the statistics of
      its inputs; see `quantization_calibration`. Smoothing and GPTQ need it.
    overwrite: replace the checkpoint that is there.
    resume: go on with what an earlier run has left.

  Raises:
    errors.CheckpointError: the source is no float GPT-J, or the output cannot
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
    output = _Output(writer, reader, options)
    done = {name for name in reader.specs if output.has(name)}
    sizes = {n: chunks.num_bytes(spec) for n, spec in reader.specs.items()}
    before = sum(sizes[name] for name in done)
    with progress.Progress('Quantizing', sum(sizes.values()), before) as bar:
      for layer, names in groups:
        variables, stats = {}, None
        if layer is not None and (calibration or options.smoothing is not None):
          variables = {name: reader.read(name) for name in names}
          stats = calibration(variables) if calibration else None
          if options.smoothing is not None:
            variables, stats, chosen = _smooth(variables, layer, options, stats)
            exponents.append(chosen)
        for name in names:
          value = variables.pop(name, None)
          if name not in done:
            output.write(name, value, stats)
            bar.advance(sizes[name], name)
    quantization_files.remove_reports(pax)
    _copy_description(reader, pax)
    quantization_record.write(
        pax, dataclasses.replace(record, exponents=tuple(exponents))
    )
    return writer.commit()


def _source(
    reader: checkpoint.Reader, record: quantization_record.Record
) -> manifest.Source:
  """What tells one quantization from another, to resume it or not."""
  files = {
      name: f'{reader.manifest[name].crc32:08x}'
      if name in reader.manifest
      else str(spec)
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
  """Names of variables, those of a layer together, layers in their order."""
  layers: dict[int, list[str]] = {}
  others = []
  matrices = 0
  for name, spec in reader.specs.items():
    match = _LAYER.match(name)
    if match:
      layers.setdefault(int(match[1]), []).append(name)
    else:
      others.append((None, [name]))
    if quantized_matrices.summed_dims(name) is not None:
      matrices += 1
      if spec.dtype not in _FLOATS:
        raise errors.CheckpointError(
            f'{reader.step_dir}: {name} is {spec}; expected a float type: a '
            'quantized checkpoint cannot be quantized again'
        )
  if not matrices:
    raise errors.CheckpointError(
        f'{reader.step_dir} has none of the matrices of a GPT-J; expected what '
        'convert_gptj_ckpt writes'
    )
  return others + sorted(layers.items())


def _smooth(variables, layer, options, stats):
  chosen = quantization_smoothing.choose(
      variables, layer, options.smoothing, stats
  )
  if stats:
    stats = quantization_smoothing.apply_to_stats(stats, chosen)
  return quantization_smoothing.apply(variables, layer, chosen), stats, chosen


class _Output:
  """Writes variables, quantized or as they are."""

  def __init__(
      self,
      writer: checkpoint_writer.Writer,
      reader: checkpoint.Reader,
      options: quantization_options.Options,
  ):
    self._writer = writer
    self._reader = reader
    self._options = options

  def has(self, name: str) -> bool:
    """Whether an earlier run has written all that is made of a variable."""
    if self._summed(name) is None:
      return self._writer.has(name)
    scale = quantized_matrices.scale_name(name)
    return self._writer.has(name) and self._writer.has(scale)

  def write(
      self,
      name: str,
      value: np.ndarray | None,
      stats: Mapping[str, quantization_inputs.InputStats] | None,
  ) -> None:
    """Writes what is made of one variable.

    Args:
      name: of the variable.
      value: what to write; None: what the source has.
      stats: of the inputs of its layer.
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
    return quantized_matrices.summed_dims(name, self._options.softmax)

  def _write_matrix(self, name, value, summed, stats) -> None:
    shape = value.shape
    rows = quantized_matrices.as_rows(
        value.astype(np.float32, copy=False), summed
    )
    inputs = (stats or {}).get(quantized_matrices.inputs_of(name))
    codes, scale = _quantized(name, rows, self._options, inputs)
    codes = quantized_matrices.from_rows(codes, shape, summed)
    scale = scale.reshape(quantized_matrices.scale_shape(shape, summed))
    for part_name, part in (
        (name, codes),
        (quantized_matrices.scale_name(name), scale),
    ):
      # A run that was killed may have finished one of the two.
      if not self._writer.has(part_name):
        self._writer.add(part_name, part)


def _quantized(
    name: str,
    rows: np.ndarray,
    options: quantization_options.Options,
    inputs: quantization_inputs.InputStats | None,
) -> tuple[np.ndarray, np.ndarray]:
  """Codes [outputs, inputs] int8 and scales [outputs] of a matrix."""
  largest = quantized_rows.limit(options.bits)
  if options.clipping:
    scale = quantized_rows.clipped_scales(
        rows, largest, inputs.mean_square if inputs else None
    )
  else:
    scale = quantized_rows.scales(rows, largest)
  if not np.isfinite(scale).all():
    raise errors.CheckpointError(
        f'variable {name} has values that are not finite; there are no codes '
        'for them: check the source'
    )
  if inputs and inputs.hessian is not None:
    codes = quantized_rows_gptq.codes(rows, scale, largest, inputs.hessian)
  else:
    codes = quantized_rows.codes(rows, scale, largest)
  return codes, scale


def _copy_description(reader: checkpoint.Reader, pax: str) -> None:
  """Carries gptj_config.json and the tokenizer along, where there are any."""
  directory = os.path.dirname(reader.step_dir)
  names = (gptj_description.FILE_NAME, *gptj_description.TOKENIZER_FILES)
  for name in names:
    path = os.path.join(directory, name)
    try:
      data = storage.read_bytes(path) if storage.exists(path) else None
    except (OSError, common_errors.SaxError) as e:
      raise errors.CheckpointError(f'{path} cannot be read: {e}') from e
    if data is not None:
      quantization_files.write(os.path.join(pax, name), data)
