"""Makes an INT8 PAX checkpoint of a PAX checkpoint, one layer at a time."""

from collections.abc import Callable, Mapping
import dataclasses
import math
import os
import re
import shutil

import numpy as np

from converters import gptj_description
from converters import progress
from converters import quantization_inputs
from converters import quantization_options
from converters import quantization_record
from converters import quantization_smoothing
from converters import quantized_matrices
from converters import quantized_rows
from converters import quantized_rows_gptq
from saxml_ext.pax import checkpoint
from saxml_ext.pax import errors
from saxml_ext.pax import metadata

# From a layer's variables to statistics by the fields of
# `quantization_layers.Inputs`.
Calibration = Callable[
    [Mapping[str, np.ndarray]], Mapping[str, quantization_inputs.InputStats]
]

_FLOAT_BYTES = {'float32': 4, 'bfloat16': 2, 'float16': 2}
_LAYER = re.compile(r'(?:.*\.)?x_layers_(\d+)\.')


def quantize(
    source: str,
    pax: str,
    record: quantization_record.Record,
    calibration: Calibration | None = None,
    overwrite: bool = False,
) -> str:
  """Quantizes and returns the step directory that was written.

  Args:
    source: float checkpoint, see `checkpoint.find_step_dir`.
    pax: output directory, made if need be.
    record: how, and on what texts; smoothing adds its exponents.
    calibration: from the variables of each layer, in turn, to the statistics of
      its inputs; see `quantization_calibration`. Smoothing and GPTQ need it.
    overwrite: replace the checkpoint that is there.

  Raises:
    errors.CheckpointError: the source is no float GPT-J, or the output cannot
      be written. No checkpoint is left behind then.
  """
  options = record.options
  reader = checkpoint.Reader(source)
  groups = _groups(reader)
  total = sum(_num_bytes(spec) for spec in reader.specs.values())
  exponents = []
  with (
      checkpoint.Writer(pax, overwrite=overwrite) as writer,
      progress.Progress('Quantizing', total) as bar,
  ):
    for layer, names in groups:
      variables = {name: reader.read(name) for name in names}
      stats = None
      if layer is not None:
        if calibration:
          stats = calibration(variables)
        if options.smoothing is not None:
          variables, stats, chosen = _smooth(variables, layer, options, stats)
          exponents.append(chosen)
      for name in names:
        _write(writer, name, variables.pop(name), options, stats)
        bar.advance(_num_bytes(reader.specs[name]), name)
    _copy_description(reader, pax)
    quantization_record.write(
        pax, dataclasses.replace(record, exponents=tuple(exponents))
    )
    return writer.commit()


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
      if spec.dtype not in _FLOAT_BYTES:
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


def _write(
    writer: checkpoint.Writer,
    name: str,
    value: np.ndarray,
    options: quantization_options.Options,
    stats: Mapping[str, quantization_inputs.InputStats] | None,
) -> None:
  summed = quantized_matrices.summed_dims(name, options.softmax)
  if summed is None:
    writer.add(name, value)
    return
  rows = quantized_matrices.as_rows(
      value.astype(np.float32, copy=False), summed
  )
  inputs = (stats or {}).get(quantized_matrices.inputs_of(name))
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
  shape = value.shape
  writer.add(name, quantized_matrices.from_rows(codes, shape, summed))
  writer.add(
      quantized_matrices.scale_name(name),
      scale.reshape(quantized_matrices.scale_shape(shape, summed)),
  )


def _copy_description(reader: checkpoint.Reader, pax: str) -> None:
  """Carries gptj_config.json and the tokenizer along, where there are any."""
  directory = os.path.dirname(reader.step_dir)
  names = (gptj_description.FILE_NAME, *gptj_description.TOKENIZER_FILES)
  try:
    for name in names:
      path = os.path.join(directory, name)
      if os.path.isfile(path):
        copy = os.path.join(pax, name)
        shutil.copyfile(path, copy + '.tmp')
        os.replace(copy + '.tmp', copy)
  except OSError as e:
    raise errors.CheckpointError(
        f'{e.filename} cannot be read or written: {e.strerror}'
    ) from e


def _num_bytes(spec: metadata.ArraySpec) -> int:
  return math.prod(spec.shape) * _FLOAT_BYTES.get(spec.dtype, 4)
