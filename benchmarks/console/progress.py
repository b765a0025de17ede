"""Shows the progress of a run."""

from rich import console as console_lib
from rich import progress as progress_lib


class Bar:
  """A progress line; without a terminal, one line for each started task."""

  def __init__(self, console: console_lib.Console):
    self._progress = progress_lib.Progress(
      progress_lib.TextColumn('{task.description}'),
      progress_lib.BarColumn(),
      progress_lib.TimeElapsedColumn(),
      progress_lib.TimeRemainingColumn(),
      console=console,
      transient=True,
    )
    self._task = self._progress.add_task('', total=1.0)

  def __enter__(self) -> 'Bar':
    self._progress.start()
    return self

  def __exit__(self, *unused) -> None:
    self._progress.stop()

  def __call__(self, text: str, share: float) -> None:
    self._progress.update(self._task, description=text, completed=share)
    if not self._progress.console.is_terminal:
      self._progress.console.print(text, markup=False)
