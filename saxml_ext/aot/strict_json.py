"""Dataclasses as JSON, read back strictly.

What is read decides which program a server runs, so nothing is guessed: a key
that is missing, one that is not known and a value of another type are errors.
"""

from collections.abc import Iterator, Mapping
import dataclasses
import json
import types
from typing import Any, get_args, get_origin, get_type_hints, Union


def dumps(value: Any) -> str:
  """A dataclass as JSON with sorted keys: equal values give equal text."""
  return json.dumps(plain(value), indent=1, sort_keys=True) + '\n'


def plain(value: Any) -> Any:
  """The value as dicts, lists and scalars."""
  if dataclasses.is_dataclass(value) and not isinstance(value, type):
    fields = dataclasses.fields(value)
    return {f.name: plain(getattr(value, f.name)) for f in fields}
  if isinstance(value, Mapping):
    return {key: plain(each) for key, each in value.items()}
  if isinstance(value, tuple):
    return [plain(each) for each in value]
  return value


def decode(text: str | bytes) -> Any:
  """JSON as dicts, lists and scalars.

  Raises:
    ValueError: it is not JSON.
  """
  try:
    return json.loads(text)
  except ValueError as e:
    raise ValueError(f'it is not JSON: {e}') from e


def parse(kind: Any, data: Any, place: str) -> Any:
  """The dataclass that `dumps` wrote, out of decoded JSON.

  Args:
    kind: its class. Fields may be scalars, None, tuples, mappings from text,
      dataclasses and unions of these.
    data: of `decode`.
    place: where `data` stands, for errors; empty: it is the whole.

  Raises:
    ValueError: it is no such JSON; the message names the place.
  """
  if isinstance(kind, types.UnionType) or get_origin(kind) is Union:
    return _union(kind, data, place)
  if dataclasses.is_dataclass(kind):
    return _dataclass(kind, data, place)
  origin = get_origin(kind)
  if origin is tuple:
    element, _ = get_args(kind)
    _check(list, data, place)
    return tuple(
      parse(element, each, f'{place}[{i}]') for i, each in enumerate(data)
    )
  if origin is Mapping:
    _, element = get_args(kind)
    _check(dict, data, place)
    return {k: parse(element, v, _join(place, k)) for k, v in data.items()}
  if kind is float and type(data) is int:
    return float(data)
  _check(kind, data, place)
  return data


def compare(a: Any, b: Any, place: str = '') -> Iterator[tuple[str, Any, Any]]:
  """Where two values of `plain` differ: place, value of a, value of b.

  What only one of them has is None in the other.
  """
  if isinstance(a, dict) and isinstance(b, dict):
    for key in sorted({*a, *b}):
      yield from compare(a.get(key), b.get(key), _join(place, key))
  elif a != b:
    yield place, a, b


def _dataclass(kind: Any, data: Any, place: str) -> Any:
  _check(dict, data, place)
  hints = get_type_hints(kind)
  names = [field.name for field in dataclasses.fields(kind)]
  missing, unknown = set(names) - set(data), set(data) - set(names)
  if missing or unknown:
    raise ValueError(
      f'{place or "it"} lacks {sorted(missing)} and has {sorted(unknown)}, which'
      ' are not known'
    )
  values = {n: parse(hints[n], data[n], _join(place, n)) for n in names}
  try:
    return kind(**values)
  except ValueError as e:  # What the class itself refuses.
    raise ValueError(f'{place or "it"}: {e}') from e


def _union(kind: Any, data: Any, place: str) -> Any:
  for choice in get_args(kind):
    try:
      return parse(choice, data, place)
    except ValueError:
      continue  # Another choice may do; else the error below names them all.
  raise ValueError(f'{place} is {data!r}, which is no {kind}')


def _check(kind: type, data: Any, place: str) -> None:
  wanted = type(None) if kind is None else kind
  if type(data) is not wanted:
    raise ValueError(
      f'{place or "it"} is {data!r}, of type {type(data).__name__}; expected'
      f' {wanted.__name__}'
    )


def _join(place: str, name: str) -> str:
  return f'{place}.{name}' if place else name
