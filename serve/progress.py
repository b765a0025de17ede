"""What the user sees while the job runs."""

from collections.abc import Iterator
import contextlib
import sys
import time
from typing import TextIO

from rich import console as rich_console
from rich import progress as rich_progress

# Without a terminal, progress is a line now and then.
PLAIN_INTERVAL_SECS = 5.0
# What a bar on a terminal leaves for a note.
_NOTE_COLUMNS = 60


class Progress:
  """Prints stages of the job, and bars within them.

  On a terminal bars are drawn in place; otherwise they are plain lines, fit
  for a log file.
  """

  def __init__(
    self,
    file: TextIO | None = None,
    interval_secs: float = PLAIN_INTERVAL_SECS,
    quiet: bool = False,
  ):
    """Creates it.

    Args:
      file: where it goes; None: standard output.
      interval_secs: time between the lines that stand for a bar.
      quiet: whether stages and bars are left out; texts are not.
    """
    self._quiet = quiet
    self.interval_secs = interval_secs
    self._file = file or sys.stdout
    self._console = rich_console.Console(file=self._file, highlight=False)
    self._start = time.monotonic()

  @property
  def _fancy(self) -> bool:
    return self._console.is_terminal and not self._quiet

  def stage(self, text: str) -> None:
    """Says what happens now."""
    if not self._quiet:
      self.text(f'[{time.monotonic() - self._start:5.0f} s] {text}')

  def text(self, text: str) -> None:
    """Prints text as it is."""
    print(text, file=self._file, flush=True)

  @contextlib.contextmanager
  def bar(self, label: str) -> Iterator['Bar']:
    """Shows a bar while the `with` block runs."""
    if not self._fancy:
      yield _PlainBar(self, label)
      return
    columns = (
      rich_progress.SpinnerColumn(),
      rich_progress.TextColumn('{task.description}'),
      rich_progress.BarColumn(),
      rich_progress.TextColumn('{task.fields[note]}'),
    )
    with rich_progress.Progress(
      *columns, console=self._console, transient=True, refresh_per_second=4
    ) as progress:
      yield _FancyBar(progress, label)


class Bar:
  """Progress of one stage."""

  def update(self, done: int, total: int, note: str = '') -> None:
    """Shows a count. A total of 0 means that none is known."""
    raise NotImplementedError


class _PlainBar(Bar):
  def __init__(self, progress: Progress, label: str):
    self._progress = progress
    self._label = label
    self._next = time.monotonic() + self._progress.interval_secs

  def update(self, done: int, total: int, note: str = '') -> None:
    if time.monotonic() < self._next:
      return
    self._next = time.monotonic() + self._progress.interval_secs
    count = f'{done}/{total}' if total else ''
    words = ' '.join(word for word in (count, note) if word)
    self._progress.stage(f'{self._label}: {words}')


class _FancyBar(Bar):
  def __init__(self, progress: rich_progress.Progress, label: str):
    self._progress = progress
    self._task = progress.add_task(label, total=None, note='')

  def update(self, done: int, total: int, note: str = '') -> None:
    count = f'{done}/{total} ' if total else ''
    self._progress.update(
      self._task,
      completed=done,
      total=total or None,
      note=_escape(count + note[:_NOTE_COLUMNS]),
    )


def _escape(text: str) -> str:
  # Log lines shown as notes may hold what rich takes for markup.
  return text.replace('[', r'\[')


def rate_note(done: int, total: int, seconds: float) -> str:
  """Such as "12.3 samples/s, 40 s left"."""
  if not done or seconds <= 0:
    return ''
  rate = done / seconds
  return f'{rate:.1f} samples/s, {(total - done) / rate:.0f} s left'
