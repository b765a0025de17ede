"""What a saxutil command is."""

from collections.abc import Callable, Sequence
import dataclasses
import sys
import time

from saxml_ext.client import sax
from saxml_ext.client.cli import go_flags
from saxml_ext.client.transport import options as options_lib


class Context:
  """What commands share: the deadline of all their calls together.

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
    """Seconds left, not negative."""
    return max(0.0, self._deadline - time.monotonic())

  def admin_options(self) -> sax.AdminOptions:
    """Options for a call to the admin server."""
    return sax.AdminOptions(timeout=self.remaining())

  def model_options(self) -> sax.ModelOptions:
    """Options for a request to a model server."""
    return sax.ModelOptions(timeout=self.remaining())


class Told(sax.SaxError):
  """A failure that the command has printed itself."""

  def __init__(self, error: sax.SaxError):
    super().__init__(error.message)
    self.code = error.code


@dataclasses.dataclass(frozen=True)
class Command:
  """A command.

  Attributes:
    name: as typed.
    synopsis: one line for the list of commands.
    usage: its arguments; further lines explain them.
    run: does it. It prints results to stdout and raises UsageError for a
      wrong command line, SaxError for a failure; notes go to stderr.
    flags: its own flags.
  """

  name: str
  synopsis: str
  usage: str
  run: Callable[[Context, go_flags.Parsed], None]
  flags: Sequence[go_flags.Flag] = ()


def complete(args: go_flags.Parsed) -> go_flags.Parsed:
  """The same arguments, a short name of a model in front completed."""
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
    args: what follows the flags.
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
  """An integer argument; raises UsageError."""
  try:
    return int(text)
  except ValueError as e:
    raise go_flags.UsageError(f'{what} "{text}" is no integer') from e
