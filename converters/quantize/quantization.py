"""Makes an INT8 PAX checkpoint of a PAX checkpoint, one layer at a time."""

from collections.abc import Callable, Mapping
import dataclasses
import os

import numpy as np

from converters.convert import pipeline
from converters.hf import tokenizer_files
from converters.quantize import input_stats
from converters.quantize import matrix_table
from converters.quantize import output as output_lib
from converters.quantize import provenance
from converters.quantize import side_files
from converters.quantize.methods import smoothing
from saxml_ext.common import errors as common_errors
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
  [Mapping[str, np.ndarray]], Mapping[str, input_stats.InputStats]
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
    output = output_lib.Output(writer, reader, options, measure)
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
    side_files.remove_reports(pax)
    _copy_description(reader, pax)
    record = dataclasses.replace(
      record, exponents=tuple(exponents), errors=output.errors
    )
    provenance.write(pax, record)
    return writer.commit()


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
  """Names of variables, those of a layer together, layers in their order."""
  layers: dict[int, list[str]] = {}
  others = []
  matrices = 0
  for name, spec in reader.specs.items():
    layer = variables_lib.layer_of(name)
    if layer is not None:
      layers.setdefault(layer, []).append(name)
    else:
      others.append((None, [name]))
    if matrix_table.summed_dims(name) is not None:
      matrices += 1
      if spec.dtype not in _FLOATS:
        raise errors.CheckpointError(
          f'{reader.step_dir}: {name} is {spec}; expected a float type: a '
          'quantized checkpoint cannot be quantized again'
        )
  if not matrices:
    raise errors.CheckpointError(
      f'{reader.step_dir} has no matrix that can be quantized; expected what'
      ' convert_hf writes'
    )
  return others + sorted(layers.items())


def _copy_description(reader: checkpoint.Reader, pax: str) -> None:
  """Carries gptj_config.json and the tokenizer along, where there are any."""
  directory = side_files.directory_of(reader.step_dir)
  path = f'{directory}/{description.FILE_NAME}'
  try:
    data = storage.read_bytes(path) if storage.exists(path) else None
  except (OSError, common_errors.SaxError) as e:
    raise errors.CheckpointError(f'{path} cannot be read: {e}') from e
  if data is not None:
    side_files.write(f'{pax}/{description.FILE_NAME}', data)
  tokenizer_files.write(pax, tokenizer_files.collect(directory))
