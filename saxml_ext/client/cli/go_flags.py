"""Parses and prints flags, numbers and durations in the format of Go programs.

A flag is "-name", "--name", "-name=value" or "-name value". A boolean flag
takes a value only with "=". Flags end at the first argument that is not a flag,
or after "--".
"""

from collections.abc import Sequence
import dataclasses
import math
import re
from typing import Any

from saxml_ext.common import errors

_SWITCH = dict.fromkeys(('1', 't', 'T', 'true', 'TRUE', 'True'), True)
_SWITCH |= dict.fromkeys(('0', 'f', 'F', 'false', 'FALSE', 'False'), False)
_HELP = frozenset({'h', 'help'})

_UNITS = {'ns': 1e-9, 'us': 1e-6, 'µs': 1e-6, 'ms': 1e-3}
_UNITS |= {'s': 1.0, 'm': 60.0, 'h': 3600.0}
_TERM = re.compile(r'(\d+\.?\d*|\.\d+)(ns|us|µs|ms|s|m|h)', re.ASCII)


class UsageError(Exception):
  """An error for a command line that cannot be parsed."""


class HelpWanted(Exception):
  """An exception for a command line that asks for help."""


@dataclasses.dataclass(frozen=True)
class Flag:
  """A flag.

  Attributes:
    name: The name, without dashes.
    default: The default value. Its type is the type of the flag: bool, int,
      float (a duration in seconds) or str.
    help: A one-line description.
  """

  name: str
  default: bool | int | float | str
  help: str

  def parse(self, text: str) -> Any:
    """Returns the value of a text; raises UsageError if it has no such type."""
    cause: Exception
    try:
      if isinstance(self.default, bool):
        return _SWITCH[text]
      if isinstance(self.default, int):
        return int(text)
      return parse_duration(text) if isinstance(self.default, float) else text
    except KeyError as e:
      problem, cause = f'"{text}" is not true or false', e
    except ValueError as e:
      problem, cause = f'"{text}" is not an integer', e
    except errors.InvalidArgument as e:
      problem, cause = e.message, e
    raise UsageError(f'flag -{self.name}: {problem}') from cause


@dataclasses.dataclass(frozen=True)
class Parsed:
  """A parsed command line.

  Attributes:
    values: The value of each flag by name, given or default.
    given: The names of the flags that the user gave.
    rest: The arguments that follow the flags.
  """

  values: dict[str, Any]
  given: frozenset[str]
  rest: list[str]

  def __getitem__(self, name: str) -> Any:
    return self.values[name]


def parse(flags: Sequence[Flag], args: Sequence[str]) -> Parsed:
  """Parses the flags at the front of a command line.

  Raises:
    UsageError: A flag is unknown, has no value or has an invalid one.
    HelpWanted: The command line has -h or -help.
  """
  by_name = {flag.name: flag for flag in flags}
  values = {flag.name: flag.default for flag in flags}
  given = set()
  rest = list(args)
  while rest and rest[0].startswith('-') and rest[0] != '-':
    arg = rest.pop(0)
    if arg == '--':
      break
    name, equals, text = arg.removeprefix('-').removeprefix('-').partition('=')
    if name not in by_name:
      if name in _HELP:
        raise HelpWanted()
      raise UsageError(f'flag provided but not defined: -{name}')
    flag = by_name[name]
    if not equals:
      if isinstance(flag.default, bool):
        text = 'true'
      elif rest:
        text = rest.pop(0)
      else:
        raise UsageError(f'flag needs an argument: -{name}')
    values[name] = flag.parse(text)
    given.add(name)
  return Parsed(values, frozenset(given), rest)


def _special(value: float) -> str | None:
  if math.isnan(value):
    return 'NaN'
  if math.isinf(value):
    return '+Inf' if value > 0 else '-Inf'
  return None


def general(value: float) -> str:
  """Returns a number with eight significant digits, "1.2345679E+08" (%.8G)."""
  return _special(value) or f'{value:.8G}'


def shortest(value: float) -> str:
  """Returns a number with as few digits as identify it, "1e+21" (Go's %v)."""
  if special := _special(value):
    return special
  text = repr(float(value))
  mantissa, _, exponent = text.partition('e')
  # Go switches to exponents at 1e21, and Python already at 1e16.
  if 1e16 <= abs(value) < 1e21:
    return f'{value:.0f}'
  mantissa = mantissa.removesuffix('.0')
  return (
    f'{mantissa}e{exponent[0]}{exponent[1:].zfill(2)}' if exponent else mantissa
  )


def parse_duration(text: str) -> float:
  """Returns the seconds of a duration such as "60s", "1m30s" or "1.5h".

  Raises:
    InvalidArgument: The text is not a duration. A plain number other than 0 has
      no unit, so it is not one either.
  """
  if text == '0':
    return 0.0
  negative = text.startswith('-')
  body = text.lstrip('+-') if len(text) - len(text.lstrip('+-')) <= 1 else ''
  terms = _TERM.findall(body)
  if not terms or ''.join(number + unit for number, unit in terms) != body:
    raise errors.InvalidArgument(
      f'"{text}" is not a duration. Write a number with a unit, for example'
      ' 500ms, 60s or 1m30s'
    )
  seconds = sum(float(number) * _UNITS[unit] for number, unit in terms)
  return -seconds if negative else seconds
