"""What the program of every scenario does."""

from collections.abc import Sequence
import os
import signal
import sys

from absl import app

from harness import errors as harness_errors
from harness import progress as progress_lib
from harness.results import report
from harness.scenarios import job as job_lib
from harness.scenarios import job_flags
from saxml_ext.common import errors


def run(name: str, scenario: str, argv: Sequence[str]) -> int:
  """Runs the job that the flags describe, and tells what came out.

  Args:
    name: of the program; errors begin with it.
    scenario: LoadGen's name.
    argv: the program's arguments, flags taken out.

  Returns:
    The exit code: 0 if LoadGen calls the run VALID and the answers pass.

  Raises:
    app.UsageError: there are arguments.
  """
  if len(argv) > 1:
    raise app.UsageError(f'unexpected argument {argv[1]!r}')
  for number in (signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, _end)
  progress = progress_lib.Progress()
  try:
    config = job_flags.config(name, scenario)
    job = job_lib.Job(config, progress)
    os.makedirs(config.results_dir, exist_ok=True)
    outcome = job.run()
    text = report.render(outcome.comparison, outcome.performance)
    path = report.write(config.results_dir, scenario, text)
  except KeyboardInterrupt:
    return _failed(
      name, 'interrupted; everything that was started is stopped', 130
    )
  except (
    errors.SaxError,
    harness_errors.HarnessError,
    OSError,
    ValueError,
  ) as error:
    return _failed(name, str(error))
  progress.text(f'\n{text}\nlogs and this report: {path}')
  problems = outcome.problems()
  return _failed(name, '; '.join(problems)) if problems else 0


def _end(number: int, unused_frame) -> None:
  # Unwinds the stack, and with it everything that was started.
  raise SystemExit(128 + number)


def _failed(name: str, reason: str, code: int = 1) -> int:
  print(f'{name}: {reason}', file=sys.stderr, flush=True)
  return code
