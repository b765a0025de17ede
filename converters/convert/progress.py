"""Shows how far a conversion is: a bar on a terminal, else now and then a line.

Lines suit a log file or a build; the bar is drawn by rich.
"""

import sys
import time

from rich import console as rich_console
from rich import progress as rich_progress

_SECONDS_BETWEEN_LINES = 5.0


class Progress:
  """Counts bytes of work; a context manager."""

  def __init__(self, verb: str, total_bytes: int, done_bytes: int = 0):
    """Starts.

    Args:
      verb: what is being done, e.g. "Converting".
      total_bytes: bytes of all the work.
      done_bytes: bytes done in an earlier run, which tell nothing of the rate.
    """
    self._verb = verb
    self._total = total_bytes
    self._done = self._before = done_bytes
    self._start = self._last_line = time.monotonic()
    self._bar = self._task = None
    if sys.stderr.isatty():
      self._bar = rich_progress.Progress(
        rich_progress.TextColumn('{task.description}'),
        rich_progress.BarColumn(),
        rich_progress.DownloadColumn(),
        rich_progress.TransferSpeedColumn(),
        rich_progress.TimeRemainingColumn(),
        console=rich_console.Console(stderr=True),
      )

  def __enter__(self) -> 'Progress':
    if self._bar:
      self._bar.start()
      self._task = self._bar.add_task(
        self._verb, total=self._total, completed=self._done
      )
    return self

  def __exit__(self, *exc_info) -> None:
    if self._bar:
      self._bar.stop()

  def advance(self, num_bytes: int, what: str) -> None:
    """Counts `num_bytes` more, of the item named `what`."""
    self._done += num_bytes
    if self._bar:
      self._bar.update(self._task, completed=self._done)
      return
    now = time.monotonic()
    if now - self._last_line >= _SECONDS_BETWEEN_LINES:
      self._last_line = now
      rate = (self._done - self._before) / (now - self._start)
      left = (self._total - self._done) / rate
      print(
        f'{self._verb} {what}: {self._done / 1e9:.1f} of '
        f'{self._total / 1e9:.1f} GB, {rate / 1e6:.0f} MB/s, {left:.0f} s '
        'left',
        file=sys.stderr,
        flush=True,
      )
