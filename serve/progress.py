"""Shows the user the progress of a job."""

from collections.abc import Iterator
import contextlib
import sys
import time
from typing import TextIO

from rich import console as rich_console
from rich import progress as rich_progress

# Without a terminal, progress lines are printed at this interval.
PLAIN_INTERVAL_SECS = 5.0
# A bar on a terminal leaves this many columns for a note.
_NOTE_COLUMNS = 60


class Progress:
  """Prints the stages of a job, and progress bars within them.

  On a terminal, bars are drawn in place. Otherwise, they are plain lines, which
  suit a log file.
  """

  def __init__(
    self,
    file: TextIO | None = None,
    interval_secs: float = PLAIN_INTERVAL_SECS,
    quiet: bool = False,
  ):
    """Sets the output.

    Args:
      file: The file to write to; None for standard output.
      interval_secs: The time between two lines that replace a bar, in seconds.
      quiet: True to leave out stages and bars, but not texts.
    """
    self._quiet = quiet
    self.interval_secs = interval_secs
    self._file = file or sys.stdout
    self._console = rich_console.Console(file=self._file, highlight=False)
    self._start = time.monotonic()

  def stage(self, text: str) -> None:
    """Prints the current stage."""
    if not self._quiet:
      self.text(f'[{time.monotonic() - self._start:5.0f} s] {text}')

  def text(self, text: str) -> None:
    """Prints a text unchanged."""
    print(text, file=self._file, flush=True)

  @contextlib.contextmanager
  def bar(self, label: str) -> Iterator['Bar']:
    """Shows a bar while the `with` block runs."""
    if not self._console.is_terminal or self._quiet:
      yield Bar(self, label)
      return
    columns = (
      rich_progress.SpinnerColumn(),
      rich_progress.TextColumn('{task.description}'),
      rich_progress.BarColumn(),
      # Notes can be log lines, which may contain markup of rich.
      rich_progress.TextColumn('{task.fields[note]}', markup=False),
    )
    with rich_progress.Progress(
      *columns, console=self._console, transient=True, refresh_per_second=4
    ) as drawn:
      yield Bar(self, label, drawn)


class Bar:
  """The progress of one stage: a bar, or lines without a terminal."""

  def __init__(
    self,
    progress: Progress,
    label: str,
    drawn: rich_progress.Progress | None = None,
  ):
    self._progress = progress
    self._label = label
    self._next = time.monotonic() + progress.interval_secs
    self._drawn = drawn
    self._task = drawn and drawn.add_task(label, total=None, note='')

  @property
  def is_due(self) -> bool:
    """True if `update` shows something now."""
    return self._drawn is not None or time.monotonic() >= self._next

  def update(self, done: int, total: int, note: str = '') -> None:
    """Shows a count; a total of 0 means that the total is unknown."""
    words = [f'{done}/{total}'] if total else []
    if self._drawn is not None and self._task is not None:
      text = ' '.join([*words, note[:_NOTE_COLUMNS]])
      self._drawn.update(
        self._task, completed=done, total=total or None, note=text
      )
    elif self.is_due:
      self._next = time.monotonic() + self._progress.interval_secs
      text = ' '.join([*words, note]).strip()
      self._progress.stage(f'{self._label}: {text}' if text else self._label)


def rate_note(done: int, total: int, seconds: float) -> str:
  """Returns a text such as "12.3 samples/s, 40 s left"."""
  if not done or seconds <= 0:
    return ''
  rate = done / seconds
  return f'{rate:.1f} samples/s, {(total - done) / rate:.0f} s left'
