"""Writes the variables of an INT8 checkpoint: quantized, or as they are."""

from collections.abc import Mapping
import dataclasses

import numpy as np

from converters.quantize import input_stats
from converters.quantize import matrix_error
from converters.quantize import matrix_table
from converters.quantize import recipe
from converters.quantize.methods import gptq
from converters.quantize.methods import rounding
from saxml_ext.pax import checkpoint
from saxml_ext.pax import checkpoint_writer
from saxml_ext.pax import errors


class Output:
  """One INT8 checkpoint on its way to the disk."""

  def __init__(
    self,
    writer: checkpoint_writer.Writer,
    reader: checkpoint.Reader,
    options: recipe.Options,
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
    self._errors: dict[str, matrix_error.MatrixError] = {}

  @property
  def errors(self) -> tuple[matrix_error.MatrixError, ...]:
    """Errors of all matrices so far, in the order of the report."""
    names = sorted(self._errors, key=matrix_error.report_order)
    return tuple(self._errors[name] for name in names)

  def has(self, name: str) -> bool:
    """Whether an earlier run has done all that is to be done of a variable."""
    if self._summed(name) is None:
      return self._writer.has(name)
    note = self._writer.note(name)
    if self._measure and note is None:
      return False
    scale = matrix_table.scale_name(name)
    done = self._writer.has(name) and self._writer.has(scale)
    if done and self._measure:
      self._errors[name] = matrix_error.MatrixError(**note)
    return done

  def write(
    self,
    name: str,
    value: np.ndarray | None,
    stats: Mapping[str, input_stats.InputStats] | None,
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
    return matrix_table.summed_dims(name, self._options.softmax)

  def _write_matrix(self, name, value, summed, stats) -> None:
    shape = value.shape
    rows = matrix_table.as_rows(value.astype(np.float32, copy=False), summed)
    inputs = (stats or {}).get(matrix_table.inputs_of(name))
    codes, scale = _quantized(name, rows, self._options, inputs)
    codes = matrix_table.from_rows(codes, shape, summed)
    scale = scale.reshape(matrix_table.scale_shape(shape, summed))
    note = None
    if self._measure:
      error = matrix_error.measure(
        name, value, codes, scale, self._options.bits
      )
      self._errors[name] = error
      note = dataclasses.asdict(error)
    # A run that was killed may have finished one of the two.
    if not self._writer.has(name):
      self._writer.add(name, codes, note)
    if not self._writer.has(matrix_table.scale_name(name)):
      self._writer.add(matrix_table.scale_name(name), scale)


def _quantized(
  name: str,
  rows: np.ndarray,
  options: recipe.Options,
  inputs: input_stats.InputStats | None,
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
    codes = gptq.codes(rows, scale, largest, inputs.hessian)
  else:
    codes = rounding.codes(rows, scale, largest)
  return codes, scale
