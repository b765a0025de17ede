"""What the program of every scenario does."""

from collections.abc import Sequence
import os
import signal
import sys

from absl import app

from harness import errors as harness_errors
from harness import progress as progress_lib
from harness.results import report
from harness.scenarios import config as config_lib
from harness.scenarios import job as job_lib
from harness.scenarios import job_flags
from harness.scenarios import outcome as outcome_lib
from saxml_ext.common import errors


def run(name: str, scenarios: Sequence[str], argv: Sequence[str]) -> int:
  """Runs the jobs that the flags describe, and tells what came out.

  Args:
    name: of the program; errors begin with it.
    scenarios: LoadGen's names.
    argv: the program's arguments, flags taken out.

  Returns:
    The exit code: 0 if LoadGen calls the runs VALID and the answers pass.

  Raises:
    app.UsageError: there are arguments.
  """
  if len(argv) > 1:
    raise app.UsageError(f'unexpected argument {argv[1]!r}')
  for number in (signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, _end)
  progress = progress_lib.Progress()
  problems: list[str] = []
  try:
    configs = job_flags.configs(scenarios)
    for config in configs:
      os.makedirs(config.results_dir, exist_ok=True)
    for config, outcome in job_lib.Job(configs, progress).run():
      problems += _tell(config, outcome, progress)
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
  return _failed(name, '; '.join(problems)) if problems else 0


def _tell(
  config: config_lib.JobConfig,
  outcome: outcome_lib.Outcome,
  progress: progress_lib.Progress,
) -> list[str]:
  """Writes and prints the report of a scenario; returns its problems."""
  text = report.render(
    outcome.judgement,
    outcome.performance,
    [str(probe) for probe in outcome.probes],
  )
  path = report.write(config.results_dir, config.load.scenario, text)
  progress.text(f'\n{text}\nlogs and this report: {path}')
  return outcome.problems()


def _end(number: int, unused_frame) -> None:
  # Unwinds the stack, and with it everything that was started.
  raise SystemExit(128 + number)


def _failed(name: str, reason: str, code: int = 1) -> int:
  print(f'{name}: {reason}', file=sys.stderr, flush=True)
  return code
