"""Members of a request's JSON object, taken one by one and checked.

What nobody took is refused at the end: a misspelt name would otherwise be a
setting without effect.
"""

from collections.abc import Collection, Mapping
import json
import math
from typing import Any, NoReturn

from saxml_ext.http.protocol import problems

_INT32 = 2**31
LEAST_INTEGER, MOST_INTEGER = -_INT32, _INT32 - 1


def parse_object(body: bytes) -> dict[str, Any]:
  """The JSON object that a request's body is.

  Raises:
    problems.BadRequest: it is no JSON, or another kind of value.
  """
  try:
    value = json.loads(body, parse_constant=_refuse_constant)
  except (ValueError, RecursionError) as e:
    reason = 'it is nested too deeply' if isinstance(e, RecursionError) else e
    raise problems.BadRequest(f'the body is not valid JSON: {reason}') from e
  if not isinstance(value, dict):
    raise problems.BadRequest(
      f'the body is a JSON {kind_of(value)}; send an object'
    )
  return value


def _refuse_constant(name: str) -> NoReturn:
  raise ValueError(f'{name} is no JSON number')


def kind_of(value: Any) -> str:
  """What JSON calls a value's type."""
  if value is None:
    return 'null'
  if isinstance(value, bool):
    return 'boolean'
  if isinstance(value, int | float):
    return 'number'
  if isinstance(value, str):
    return 'string'
  return 'array' if isinstance(value, list) else 'object'


def is_integer(value: Any) -> bool:
  """Whether a JSON value is a whole number; true and false are not."""
  return isinstance(value, int) and not isinstance(value, bool)


class Fields:
  """The members of a JSON object; null counts as absent.

  Every method takes one member away and raises `problems.BadRequest`, which
  names it, if its value does not fit.
  """

  def __init__(self, members: Mapping[str, Any], where: str = ''):
    """`where` begins the names in messages: "stream_options."."""
    self._left = {k: v for k, v in members.items() if v is not None}
    self._where = where

  def __contains__(self, name: str) -> bool:
    return name in self._left

  def raw(self, name: str) -> Any:
    """A member as it is; None if absent."""
    return self._left.pop(name, None)

  def fail(self, name: str, text: str) -> NoReturn:
    """Refuses the request because of a member."""
    name = self._where + name
    raise problems.BadRequest(f'{name}: {text}', param=name)

  def flag(self, name: str) -> bool | None:
    """A boolean."""
    value = self.raw(name)
    if value is not None and not isinstance(value, bool):
      self.fail(name, f'a {kind_of(value)} was sent; send true or false')
    return value

  def integer(
    self, name: str, least: int = LEAST_INTEGER, most: int = MOST_INTEGER
  ) -> int | None:
    """A whole number within bounds."""
    value = self.raw(name)
    if value is None:
      return None
    if not is_integer(value):
      self.fail(name, f'{_shown(value)} is no whole number')
    if not least <= value <= most:
      self.fail(name, f'{_shown(value)} is not from {least} to {most}')
    return value

  def number(self, name: str, least: float, most: float) -> float | None:
    """A finite number within bounds."""
    value = self.raw(name)
    if value is None:
      return None
    if isinstance(value, bool) or not isinstance(value, int | float):
      self.fail(name, f'{_shown(value)} is no number')
    # The comparison first: an integer may be too large for a float.
    if not least <= value <= most or not math.isfinite(value):
      self.fail(name, f'{_shown(value)} is not from {least:g} to {most:g}')
    return float(value)

  def text(self, name: str) -> str | None:
    """A string that can be sent on as UTF-8."""
    value = self.raw(name)
    if value is None:
      return None
    if not isinstance(value, str):
      self.fail(name, f'a {kind_of(value)} was sent; send a string')
    self.check_text(name, value)
    return value

  def check_text(self, name: str, value: str) -> None:
    """Refuses half of a surrogate pair, which is no character."""
    try:
      value.encode()
    except UnicodeEncodeError as e:
      self.fail(name, f'it is no valid Unicode: {e}')

  def texts(self, name: str, most: int) -> list[str]:
    """A string, or an array of strings; [] if absent."""
    value = self.raw(name)
    if value is None:
      return []
    value = [value] if isinstance(value, str) else value
    if not isinstance(value, list) or not all(
      isinstance(item, str) for item in value
    ):
      self.fail(name, 'send a string or an array of strings')
    if len(value) > most:
      self.fail(name, f'{len(value)} texts were sent; the limit is {most}')
    for item in value:
      self.check_text(name, item)
    return value

  def ids(self, name: str, most: int) -> list[int]:
    """An array of token ids; [] if absent."""
    value = self.raw(name)
    if value is None:
      return []
    if not isinstance(value, list) or not all(map(is_integer, value)):
      self.fail(name, 'send an array of token ids, which are whole numbers')
    if len(value) > most:
      self.fail(name, f'{len(value)} ids were sent; the limit is {most}')
    for item in value:
      if not 0 <= item < _INT32:
        self.fail(name, f'{_shown(item)} is no token id')
    return value

  def members(self, name: str) -> 'Fields':
    """An object; one without members if absent."""
    value = self.raw(name)
    if value is not None and not isinstance(value, dict):
      self.fail(name, f'a {kind_of(value)} was sent; send an object')
    return Fields(value or {}, f'{self._where}{name}.')

  def take_harmless(self, names: Collection[str]) -> None:
    """Takes members that need not have an effect."""
    for name in names:
      self._left.pop(name, None)

  def refuse_unless(self, neutral: Mapping[str, tuple[Any, ...]]) -> None:
    """Takes members of which only values without effect are possible here.

    Args:
      neutral: name -> the values of it that ask for nothing.
    """
    for name, values in neutral.items():
      value = self.raw(name)
      if value is None or any(value == v for v in values):
        continue
      hint = (
        f'; leave it out, or send {json.dumps(values[0])}' if values else ''
      )
      self.fail(
        name, f'{_shown(value)} asks for what this server cannot do{hint}'
      )

  def finish(self) -> None:
    """Refuses what nobody took."""
    for name in self._left:
      self.fail(name, 'this server knows no such parameter')


# A request: its JSON object, or fields that somebody else has made of it.
Body = dict[str, Any] | Fields


def of(body: Body) -> Fields:
  """Returns the fields of a request."""
  return body if isinstance(body, Fields) else Fields(body)


def _shown(value: Any) -> str:
  """A value as a message shows it, which is not its whole length."""
  try:
    text = json.dumps(value)
  except ValueError:  # An integer of thousands of digits.
    return 'the number'
  return text if len(text) <= 60 else f'{text[:57]}...'
