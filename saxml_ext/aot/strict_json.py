"""Reads JSON as a dataclass strictly, and compares dataclasses.

What is read decides which program a server runs, so nothing is guessed: a
missing key, an unknown one and a value of another type are errors.
"""

from collections.abc import Iterator
import dataclasses
from typing import Any, TypeVar

import msgspec

_T = TypeVar('_T')


def parse(data: Any, kind: type[_T]) -> _T:
  """Returns decoded JSON as a dataclass.

  Raises:
    ValueError: It is not one; the message names the place.
  """
  try:
    value = msgspec.convert(data, kind)
  except msgspec.ValidationError as e:
    reason, _, place = str(e).partition(' - at `$')
    raise ValueError(f'{place.strip(".`") or "it"}: {reason}') from e
  for place, found, known in differences(data, plain(value)):
    raise ValueError(
      f'{place} is {found!r} instead of {known!r}: a field is missing or'
      ' unknown'
    )
  return value


def plain(value: Any) -> Any:
  """Returns a dataclass as dicts, lists and scalars."""
  # msgspec alone would leave out defaults of what it has read.
  return msgspec.json.decode(msgspec.json.encode(dataclasses.asdict(value)))


def differences(
  a: Any, b: Any, place: str = ''
) -> Iterator[tuple[str, Any, Any]]:
  """Yields the places where two plain values differ, and what each has there.

  What only one of them has is None in the other.
  """
  if isinstance(a, dict) and isinstance(b, dict):
    for key in sorted({*a, *b}):
      below = f'{place}.{key}' if place else key
      yield from differences(a.get(key), b.get(key), below)
  elif a != b:
    yield place, a, b
