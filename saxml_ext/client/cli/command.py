"""The commands of saxutil: what each is, and which module has it.

Importing all modules takes longer than most commands run, so a module is
imported when one of its commands is asked for.
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
  """State that commands share: the deadline of all their calls together.

  Attributes:
    timeout: Seconds that they may take.
    is_given: Whether the user has set the timeout.
  """

  def __init__(self, timeout: float, is_given: bool = True):
    """Starts the clock."""
    self.timeout = timeout
    self.is_given = is_given
    self._deadline = time.monotonic() + timeout

  def remaining(self) -> float:
    """Returns the seconds left, not negative."""
    return max(0.0, self._deadline - time.monotonic())

  def admin_options(self) -> sax.AdminOptions:
    """Returns the options for a call to the admin server."""
    return sax.AdminOptions(timeout=self.remaining())

  def model_options(self) -> sax.ModelOptions:
    """Returns the options for a request to a model server."""
    return sax.ModelOptions(timeout=self.remaining())


class Told(sax.SaxError):
  """A failure that the command has printed itself."""

  def __init__(self, error: sax.SaxError):
    super().__init__(error.message)
    self.code = error.code


_Run = Callable[[Context, go_flags.Parsed], None]


@dataclasses.dataclass(frozen=True)
class Command:
  """A command.

  Attributes:
    name: The name, as typed.
    synopsis: one line for the list of commands.
    usage: its arguments; further lines explain them.
    run: does it. It prints results to stdout and raises UsageError for a
      wrong command line, SaxError for a failure; notes go to stderr.
    count: The least and the most arguments; None for any number.
    flags: its own flags.
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
  """Declares a function as the command whose name its usage begins with.

  Args:
    usage: The name and the arguments; further lines explain them.
    synopsis: One line for the list of commands.
    count: The least and the most arguments; None for any number.
    *flags: The flags of the command.
  """

  def declared(run: _Run) -> _Run:
    name = usage.split()[0]
    _declared[name] = Command(name, synopsis, usage, run, count, flags)
    return run

  return declared


# Module -> the names of its commands.
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
  """Returns the command of that name; None if there is none."""
  return _load(name) if name in _MODULES else None


def _load(name: str) -> Command:
  importlib.import_module(f'saxml_ext.client.cli.{_MODULES[name]}')
  return _declared[name]


def complete(args: go_flags.Parsed) -> go_flags.Parsed:
  """Returns the arguments, a short name of a model in front completed."""
  if not args.rest:
    return args
  rest = [options_lib.model_id(args.rest[0]), *args.rest[1:]]
  return dataclasses.replace(args, rest=rest)


def note(text: str, kind: str = 'Note') -> None:
  """Prints something that is not a result to stderr, after its kind."""
  print(f'{kind}: {text}', file=sys.stderr, flush=True)


def check_count(args: Sequence[str], least: int, most: int | None) -> None:
  """Checks a number of arguments; raises UsageError.

  Args:
    args: The arguments that follow the flags.
    least: so many are needed.
    most: so many are allowed; None for any number.
  """
  if len(args) >= least and (most is None or len(args) <= most):
    return
  if most is None:
    expected = f'at least {least}'
  else:
    expected = str(least) if least == most else f'{least} to {most}'
  raise go_flags.UsageError(
    f'got {len(args)} arguments, not {expected} (flags go before them)'
  )


def parse_int(text: str, what: str) -> int:
  """Returns an integer argument; raises UsageError."""
  try:
    return int(text)
  except ValueError as e:
    raise go_flags.UsageError(f'{what} "{text}" is no integer') from e
