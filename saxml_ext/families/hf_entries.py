"""Reads single entries of config.json, and merges those in several places."""

from collections.abc import Iterable, Mapping
import json
import reprlib
from typing import Any

from saxml_ext.pax import errors

# The values of an entry without settings.
NONE: tuple[Any, ...] = (None, {}, [])
# The place of values that a file does not state.
DEFAULTS = 'the default of transformers'
INT_LIMIT = (1 << 31) - 1


class Entries:
  """Typed access to the entries of one config.json."""

  def __init__(self, path: str, document: Mapping[str, Any]):
    self._path = path
    self._document = document

  def nested(self, key: str, document: Mapping[str, Any]) -> 'Entries':
    """Returns the entries of a table within this one; `key` is its name."""
    return Entries(f'{self._path}: {key}', document)

  def get(self, key: str, default: Any = None) -> Any:
    """Returns an entry, or the default if it is missing or null."""
    value = self._document.get(key)
    return default if value is None else value

  def integer(
    self, key: str, default: Any, null: Any = None, least: int = 1
  ) -> int:
    """Returns an integer; `null` stands for null, `default` for no entry."""
    value = self._document.get(key, default)
    value = null if value is None else value
    if type(value) is not int or not least <= value <= INT_LIMIT:
      raise self.error(key, f'an integer between {least} and {INT_LIMIT}')
    return value

  def number(self, key: str, default: float | None, below: float) -> float:
    value = self._document.get(key, default)
    if type(value) not in (int, float) or not 0 < value < below:
      raise self.error(key, f'a number above 0 and below {below:g}')
    return float(value)

  def check(self, key: str, accepted: tuple[Any, ...]) -> Any:
    """Returns an entry that has one of some values; the first is the default."""
    value = self.get(key, accepted[0])
    if not is_one_of(value, accepted):
      listed = [_text(v) for v in accepted if v not in ({}, [])]
      several = 'one of ' if len(listed) > 1 else ''
      raise self.error(key, several + ', '.join(listed))
    return value

  def tokens(self, key: str, default: Any = None) -> tuple[int, ...]:
    """Returns the ids of an entry that is an id, a list of ids or null.

    The id -1 stands for no token, as in files of LLaMA 1 and Vicuna.
    """
    value = self._document.get(key, default)
    ids = tuple(value) if isinstance(value, list) else (value,)
    if ids in ((None,), (-1,)):
      return ()
    if any(type(id_) is not int or not 0 <= id_ <= INT_LIMIT for id_ in ids):
      raise self.error(key, f'the id of a token, up to {INT_LIMIT}, or null')
    return ids

  def error(self, key: str, expected: str) -> errors.CheckpointError:
    """Returns the error of an entry that has another value than expected."""
    value = self._document.get(key)
    text = _text(value) if key in self._document else 'missing'
    return errors.CheckpointError(
      f'{self._path}: {key} is {text}. Expected {expected}.'
    )


def _text(value: Any) -> str:
  """Returns a short form of a value for messages."""
  if isinstance(value, dict | list):
    return reprlib.repr(value)
  text = json.dumps(value)
  return text if len(text) <= 100 else f'{text[:97]}...'


def is_one_of(value: Any, accepted: tuple[Any, ...]) -> bool:
  """Returns True if a value is accepted; 0 and 1 are no booleans."""
  return any(
    value == choice and isinstance(value, bool) == isinstance(choice, bool)
    for choice in accepted
  )


def merge(path: str, values: Iterable[tuple[str, str, Any]]) -> dict[str, Any]:
  """Returns the first value of each setting that is not null.

  Args:
    path: The path of the file, for messages.
    values: Triples of the place, the setting and its value there.

  Raises:
    errors.CheckpointError: A later place has another value. Only DEFAULTS may
      differ.
  """
  merged: dict[str, tuple[str, Any]] = {}
  for source, key, value in values:
    if value is None:
      continue
    first, used = merged.setdefault(key, (source, value))
    if source != DEFAULTS and not is_one_of(value, (used,)):
      raise errors.CheckpointError(
        f'{path} has two values of {key}: {_text(used)} ({first}) and'
        f' {_text(value)} ({source}). transformers uses the first. Correct it,'
        ' and remove the other.'
      )
  return {key: value for key, (_, value) in merged.items()}
