"""What the program of every scenario does."""

from collections.abc import Callable, Sequence
import signal
import sys

from absl import app

from harness import errors as harness_errors
from harness.results import nodes
from harness.results import result_text
from harness.results import store as store_lib
from harness.scenarios import config as config_lib
from harness.scenarios import outcome as outcome_lib
from harness.scenarios import recording
from harness.scenarios import result_directories
from harness.scenarios import scenario_run
from harness.scenarios.flags import job_flags
from saxml_ext.common import errors
from serve import progress as progress_lib


def run(
  name: str,
  scenarios: Sequence[str],
  argv: Sequence[str],
  progress: progress_lib.Progress | None = None,
  then: Callable[[Sequence[str]], None] = lambda directories: None,
) -> int:
  """Runs the jobs that the flags describe, and tells what came out.

  A job whose result is stored is not run again, unless --rerun says so.

  Args:
    name: of the program; errors begin with it.
    scenarios: LoadGen's names.
    argv: the program's arguments, flags taken out.
    progress: where the user is told what happens; None: standard output.
    then: gets the directories of all results, if all jobs have passed; may
      raise what is told like a job's failure.

  Returns:
    The exit code: 0 if LoadGen calls the runs VALID and the answers pass.

  Raises:
    app.UsageError: there are arguments.
  """
  if len(argv) > 1:
    raise app.UsageError(f'unexpected argument {argv[1]!r}')
  for number in (signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, _end)
  try:
    problems, directories = _run(scenarios, progress or progress_lib.Progress())
    if not problems:
      then(directories)
  except KeyboardInterrupt:
    return _failed(
      name, 'interrupted; everything that was started is stopped', 130
    )
  except _Ended as end:
    return _failed(
      name,
      f'ended by {end.signal.name}; everything that was started is stopped',
      128 + end.signal,
    )
  except OSError as error:
    return _failed(name, _text(error))
  except (
    errors.SaxError,
    harness_errors.HarnessError,
    ValueError,
  ) as error:
    return _failed(name, str(error))
  return _failed(name, '; '.join(problems)) if problems else 0


def _run(
  scenarios: Sequence[str], progress: progress_lib.Progress
) -> tuple[list[str], list[str]]:
  """Runs what is not stored; returns why something did not pass, and where
  all results lie."""
  problems: list[str] = []
  directories: list[str] = []
  place, configs = job_flags.jobs(scenarios)
  todo = []
  for config in configs:
    stored = None if job_flags.RERUN.value else place.stored(config)
    if stored is None:
      todo.append(config)
    else:
      problems += _tell_stored(stored, progress)
      directories.append(stored.directory)
  if not todo:
    return problems, directories
  with place.begin(todo) as placed:
    recorder = recording.Recorder(placed[0])
    for config, outcome in scenario_run.run_jobs(placed, progress):
      problems += _tell(config, outcome, recorder, progress)
      directories.append(config.results_dir)
  return problems, directories


def _tell(
  config: config_lib.JobConfig,
  outcome: outcome_lib.Outcome,
  recorder: recording.Recorder,
  progress: progress_lib.Progress,
) -> list[str]:
  """Writes and prints the report of a scenario; returns its problems."""
  text = result_text.render(
    outcome.judgement,
    outcome.performance,
    [str(probe) for probe in outcome.probes],
    nodes.text(outcome.served),
  )
  path = result_text.write(config.results_dir, config.load.scenario, text)
  entry = recorder.entry(config, outcome)
  entry.write(config.results_dir)
  progress.text(f'\n{text}\nlogs and this report: {path}\nresult {entry.id}')
  return outcome.problems()


def _tell_stored(
  stored: store_lib.Stored, progress: progress_lib.Progress
) -> list[str]:
  """Prints the report of an earlier run; returns its problems."""
  progress.text(
    f'{result_directories.report_text(stored)}\nresult {stored.id} of'
    f' {stored.entry.began}, in {stored.directory}; --rerun makes it anew'
  )
  return result_directories.problems(stored.entry)


class _Ended(BaseException):
  """A signal asks the program to end; unwinds the stack as Ctrl-C does."""

  def __init__(self, number: int):
    super().__init__(number)
    self.signal = signal.Signals(number)


def _end(number: int, unused_frame) -> None:
  # Unwinds the stack, and with it everything that was started.
  raise _Ended(number)


def _text(error: OSError) -> str:
  """Returns an error's text, without its number if it is of a file."""
  if error.filename is None or error.strerror is None:
    return str(error)
  return (
    f'{error.filename} cannot be used: {error.strerror}; correct the path, or'
    ' see that the file is there and may be read'
  )


def _failed(name: str, reason: str, code: int = 1) -> int:
  print(f'{name}: {reason}', file=sys.stderr, flush=True)
  return code
