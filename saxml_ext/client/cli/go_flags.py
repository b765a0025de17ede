"""Command lines as Go programs read them.

A flag is "-name", "--name", "-name=value" or "-name value"; a boolean one
takes its value only with "=". Flags end at the first argument that is none,
or after "--".
"""

from collections.abc import Sequence
import dataclasses
from typing import Any

from saxml_ext.client.cli import go_format
from saxml_ext.common import errors

_TRUE = frozenset({'1', 't', 'T', 'true', 'TRUE', 'True'})
_FALSE = frozenset({'0', 'f', 'F', 'false', 'FALSE', 'False'})
_HELP = frozenset({'h', 'help'})


class UsageError(Exception):
  """The command line cannot be understood."""


class HelpWanted(Exception):
  """The command line asks for help."""


@dataclasses.dataclass(frozen=True)
class Flag:
  """A flag.

  Attributes:
    name: without dashes.
    default: its value if it is not given; also tells its type, one of bool,
      int, float (a duration, in seconds) and str.
    help: one line.
  """

  name: str
  default: bool | int | float | str
  help: str

  def parse(self, text: str) -> Any:
    """The value that a text stands for; raises UsageError."""
    if isinstance(self.default, bool):
      if text in _TRUE | _FALSE:
        return text in _TRUE
      raise UsageError(f'flag -{self.name}: "{text}" is not true or false')
    if isinstance(self.default, int):
      try:
        return int(text)
      except ValueError as e:
        raise UsageError(f'flag -{self.name}: "{text}" is no integer') from e
    if isinstance(self.default, float):
      try:
        return go_format.parse_duration(text)
      except errors.InvalidArgument as e:
        raise UsageError(f'flag -{self.name}: {e.message}') from e
    return text


@dataclasses.dataclass(frozen=True)
class Parsed:
  """A command line.

  Attributes:
    values: flag name -> value, given or default.
    given: names of the flags that are there.
    rest: what follows the flags.
  """

  values: dict[str, Any]
  given: frozenset[str]
  rest: list[str]

  def __getitem__(self, name: str) -> Any:
    return self.values[name]


def parse(flags: Sequence[Flag], args: Sequence[str]) -> Parsed:
  """Reads flags from the front of a command line.

  Raises:
    UsageError: a flag is unknown, has no value or a wrong one.
    HelpWanted: -h or -help is there.
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
