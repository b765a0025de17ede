"""Converts JSON to dataclasses strictly, and compares dataclasses.

The JSON determines the programs that a server runs, so nothing is guessed. A
missing key, an unknown key and a value of another type are errors.
"""

from collections.abc import Iterator
import dataclasses
from typing import Any, TypeVar

import msgspec

_T = TypeVar('_T')


def parse(data: Any, kind: type[_T]) -> _T:
  """Converts decoded JSON to a dataclass.

  Raises:
    ValueError: The JSON does not match the dataclass. The message contains the
      path of the value.
  """
  try:
    value = msgspec.convert(data, kind)
  except msgspec.ValidationError as e:
    reason, _, path = str(e).partition(' - at `$')
    raise ValueError(f'{path.strip(".`") or "it"}: {reason}') from e
  for path, given, known in differences(data, plain(value)):
    raise ValueError(
      f'{path} is {given!r} instead of {known!r}. A field is missing or'
      ' unknown.'
    )
  return value


def plain(value: Any) -> Any:
  """Converts a dataclass to dicts, lists and scalars."""
  # The output of msgspec alone would lack fields with default values.
  return msgspec.json.decode(msgspec.json.encode(dataclasses.asdict(value)))


def differences(
  a: Any, b: Any, path: str = ''
) -> Iterator[tuple[str, Any, Any]]:
  """Yields the path and both values of each difference between plain values.

  If only one of them has a key, the value in the other is None.
  """
  if isinstance(a, dict) and isinstance(b, dict):
    for key in sorted({*a, *b}):
      below = f'{path}.{key}' if path else key
      yield from differences(a.get(key), b.get(key), below)
  elif a != b:
    yield path, a, b
