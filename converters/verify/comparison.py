"""Comparison of a PAX checkpoint with the Hugging Face one it came from."""

from collections.abc import Iterator
import dataclasses

import numpy as np

from converters.convert import model_source
from saxml_ext.families import layout
from saxml_ext.pax import checkpoint
from saxml_ext.pax import errors
from saxml_ext.pax import metadata

# What the name of a line of logits begins with.
LOGITS = 'logits:'


@dataclasses.dataclass(frozen=True)
class Comparison:
  """One line: a variable, or logits.

  Attributes:
    name: of what was compared.
    found: its type and shape.
    max_difference: the largest; None where there is none.
    note: more that is good to know.
    problem: what is wrong; empty if nothing is.
  """

  name: str
  found: str
  max_difference: float | None
  note: str = ''
  problem: str = ''


def compare(base: str, pax: str) -> Iterator[Comparison]:
  """Compares with a Hugging Face checkpoint; a line for each variable.

  Raises:
    errors.CheckpointError: either side cannot be read.
  """
  source = model_source.ModelSource(base)
  reader = checkpoint.Reader(pax)
  for variable in source.variables:
    yield _compare_with_hf(source, reader, variable)
  expected = {v.name for v in source.variables}
  yield from unexpected(reader, expected)


def _compare_with_hf(
  source: model_source.ModelSource,
  reader: checkpoint.Reader,
  variable: layout.Variable,
) -> Comparison:
  name, spec, problem = check(reader, variable.name, variable.shape)
  if spec and not problem and spec.dtype not in model_source.DTYPES:
    problem = f'expected {" or ".join(model_source.DTYPES)}'
  if spec is None or problem:
    return Comparison(name, str(spec or '-'), None, problem=problem)
  expected = source.build(variable, model_source.DTYPES[spec.dtype])
  return compare_values(reader, name, expected)


def compare_values(
  reader: checkpoint.Reader, name: str, expected: np.ndarray
) -> Comparison:
  """Compares a variable with the only values that it may have."""
  difference = max_difference(reader.read(name), expected)
  # A NaN compares as different too.
  problem = '' if difference == 0 else 'differs'
  return Comparison(
    name,
    str(reader.specs[name]),
    difference,
    problem=problem or damage(reader, name),
  )


def check(
  reader: checkpoint.Reader, name: str, shape: tuple[int, ...]
) -> tuple[str, metadata.ArraySpec | None, str]:
  """The name, what there is of that name, and what is wrong with it."""
  spec = reader.specs.get(name)
  if spec is None:
    return name, None, 'missing'
  if spec.shape != shape:
    return name, spec, f'expected shape {list(shape)}'
  return name, spec, ''


def damage(reader: checkpoint.Reader, name: str) -> str:
  """What the manifest has against a variable, if there is a manifest."""
  try:
    reader.verify(name)
  except errors.CheckpointError as e:
    return str(e)
  return ''


def unexpected(
  reader: checkpoint.Reader, expected: set[str]
) -> Iterator[Comparison]:
  """A line for each variable that should not be there."""
  for name, spec in reader.specs.items():
    if name not in expected:
      yield Comparison(name, str(spec), None, problem='unexpected')


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
