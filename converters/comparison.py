"""Comparison of a PAX checkpoint with the Hugging Face one it came from."""

from collections.abc import Iterator
import dataclasses

import numpy as np

from converters import gptj_source
from saxml_ext.pax import checkpoint
from saxml_ext.pax import layout


@dataclasses.dataclass(frozen=True)
class Comparison:
  """One variable's line; `max_difference` is None where there is none."""

  name: str
  found: str
  max_difference: float | None
  problem: str = ''


def compare(base: str, pax: str) -> Iterator[Comparison]:
  """Yields a comparison for every variable that either side has.

  Raises:
    errors.CheckpointError: either side cannot be read.
  """
  source = gptj_source.GPTJSource(base)
  reader = checkpoint.Reader(pax)
  for variable in source.variables:
    yield _compare_variable(source, reader, variable)
  expected = {v.name for v in source.variables}
  for name, spec in reader.specs.items():
    if name not in expected:
      yield Comparison(name, str(spec), None, 'unexpected')


def _compare_variable(
    source: gptj_source.GPTJSource,
    reader: checkpoint.Reader,
    variable: layout.Variable,
) -> Comparison:
  name = variable.name
  spec = reader.specs.get(name)
  if spec is None:
    return Comparison(name, '-', None, 'missing')
  if spec.shape != variable.shape:
    return Comparison(
        name, str(spec), None, f'expected shape {list(variable.shape)}'
    )
  if spec.dtype not in gptj_source.DTYPES:
    return Comparison(
        name, str(spec), None, f'expected {" or ".join(gptj_source.DTYPES)}'
    )
  expected = source.build(variable, gptj_source.DTYPES[spec.dtype])
  difference = max_difference(reader.read(name), expected)
  # A NaN compares as different too.
  return Comparison(
      name, str(spec), difference, '' if difference == 0 else 'differs'
  )


def max_difference(a: np.ndarray, b: np.ndarray) -> float:
  """Largest |a - b|; NaN if either has one."""
  a, b = a.reshape(-1), b.reshape(-1)
  largest = 0.0
  for begin in range(0, a.size, 1 << 22):
    part = slice(begin, begin + (1 << 22))
    difference = np.abs(
        a[part].astype(np.float32) - b[part].astype(np.float32)
    ).max()
    largest = np.maximum(largest, difference)
  return float(largest)
