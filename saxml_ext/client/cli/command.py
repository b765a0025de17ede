"""Declares the commands of saxutil and maps each to its module.

Importing all modules takes longer than most commands run. A module is therefore
imported only when one of its commands is used.
"""

from collections.abc import Callable, Sequence
import dataclasses
import importlib
import sys
import time

from saxml_ext.client import sax
from saxml_ext.client.cli import go_flags
from saxml_ext.client.transport import options as options_lib


class Context:
  """The state of a command: the deadline that all its calls share.

  Attributes:
    timeout: The time limit of all calls together, in seconds.
    is_given: True if the user has set the timeout.
  """

  def __init__(self, timeout: float, is_given: bool = True):
    """Starts the clock."""
    self.timeout = timeout
    self.is_given = is_given
    self._deadline = time.monotonic() + timeout

  def remaining(self) -> float:
    """Returns the seconds left, at least 0."""
    return max(0.0, self._deadline - time.monotonic())

  def admin_options(self) -> sax.AdminOptions:
    """Returns the options for a call to the admin server."""
    return sax.AdminOptions(timeout=self.remaining())

  def model_options(self) -> sax.ModelOptions:
    """Returns the options for a request to a model server."""
    return sax.ModelOptions(timeout=self.remaining())


class Printed(sax.SaxError):
  """A failure that the command has already printed."""

  def __init__(self, error: sax.SaxError):
    super().__init__(error.message)
    self.code = error.code


_Run = Callable[[Context, go_flags.Parsed], None]


@dataclasses.dataclass(frozen=True)
class Command:
  """A command.

  Attributes:
    name: The name, as typed.
    synopsis: The one-line description in the list of commands.
    usage: The name and the arguments; further lines explain them.
    run: The function that runs the command. It prints results to stdout and
      notes to stderr. It raises UsageError for a wrong command line and
      SaxError for a failure.
    count: The minimum and maximum number of arguments; the maximum is None if
      there is no limit.
    flags: The flags of this command.
  """

  name: str
  synopsis: str
  usage: str
  run: _Run
  count: tuple[int, int | None]
  flags: Sequence[go_flags.Flag] = ()


_declared: dict[str, Command] = {}


def declare(
  usage: str,
  synopsis: str,
  count: tuple[int, int | None],
  *flags: go_flags.Flag,
) -> Callable[[_Run], _Run]:
  """Returns a decorator that declares a function as a command.

  Args:
    usage: The name and the arguments; further lines explain them.
    synopsis: The one-line description in the list of commands.
    count: The minimum and maximum number of arguments; the maximum is None if
      there is no limit.
    *flags: The flags of the command.
  """

  def declared(run: _Run) -> _Run:
    name = usage.split()[0]
    _declared[name] = Command(name, synopsis, usage, run, count, flags)
    return run

  return declared


# Maps each module to the names of its commands.
_COMMANDS = {
  'cells': 'create delete getacl setacl',
  'listing': 'ls stats wait watch',
  'model_commands': (
    'am.recognize lm.embed lm.generate lm.gradient lm.score vm.classify'
    ' vm.detect vm.embed vm.generate'
  ),
  'publishing': 'export publish save unpublish update update_checkpoint',
}
_MODULES = {
  name: module for module, names in _COMMANDS.items() for name in names.split()
}


def names() -> list[str]:
  """Returns the names of all commands, sorted."""
  return sorted(_MODULES)


def commands() -> list[Command]:
  """Returns all commands, sorted by name."""
  return [_load(name) for name in names()]


def get(name: str) -> Command | None:
  """Returns the command with this name, or None if there is none."""
  return _load(name) if name in _MODULES else None


def _load(name: str) -> Command:
  importlib.import_module(f'saxml_ext.client.cli.{_MODULES[name]}')
  return _declared[name]


def complete(args: go_flags.Parsed) -> go_flags.Parsed:
  """Returns the arguments with a short model name in front made a full id."""
  if not args.rest:
    return args
  rest = [options_lib.model_id(args.rest[0]), *args.rest[1:]]
  return dataclasses.replace(args, rest=rest)


def note(text: str, kind: str = 'Note') -> None:
  """Prints a message that is not a result to stderr, with its kind in front."""
  print(f'{kind}: {text}', file=sys.stderr, flush=True)


def check_count(args: Sequence[str], least: int, most: int | None) -> None:
  """Checks the number of arguments; raises UsageError.

  Args:
    args: The arguments that follow the flags.
    least: The minimum number.
    most: The maximum number, or None for no limit.
  """
  if len(args) >= least and (most is None or len(args) <= most):
    return
  if most is None:
    expected = f'at least {least}'
  else:
    expected = str(least) if least == most else f'{least} to {most}'
  raise go_flags.UsageError(
    f'got {len(args)} arguments, not {expected}. Flags must precede them'
  )


def parse_int(text: str, what: str) -> int:
  """Returns an argument as an integer; raises UsageError if it is none."""
  try:
    return int(text)
  except ValueError as e:
    raise go_flags.UsageError(f'{what} "{text}" is not an integer') from e
