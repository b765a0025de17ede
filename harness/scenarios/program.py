"""Runs jobs and reports their results; shared by the scenario programs."""

from collections.abc import Callable, Sequence
import errno
import os
import signal
import sys

from absl import app

from harness import errors as harness_errors
from harness.results import store as store_lib
from harness.scenarios import job as job_lib
from harness.scenarios import recording
from harness.scenarios import scenario_run
from harness.scenarios import session
from saxml_ext.common import errors
from serve import progress as progress_lib

# The remedies for flags that the programs of one scenario do not have, and for
# those of CM. A name that ends with a dot stands for all that begin with it.
_HINTS = {
  'scenario': 'This program runs one scenario. Use //harness:main to choose'
  ' scenarios with --scenario',
  **{
    f'{scenario}_{target}': f"CM's flag is {name} here, with"
    f' --scenario={scenario}'
    for target, name, scenarios in (
      ('target_qps', '--target_qps', ('offline', 'server')),
      (
        'target_latency',
        '--target_latency_ms',
        ('server', 'singlestream', 'multistream'),
      ),
    )
    for scenario in scenarios
  },
  'target_latency': "CM's flag is --target_latency_ms here",
  'env.': "CM's --env sets variables of its scripts. Use the flag of the same"
  ' purpose. docs/commands.md lists the flags of CM',
  'adr.': "CM's --adr configures its scripts. Omit it, because versions are"
  ' pinned here. docs/commands.md lists the flags of CM',
  'tags': "CM's --tags select its scripts. Omit it, because each script is a"
  ' program here. docs/commands.md lists them',
}
# These signals end a job.
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def hints(argv: Sequence[str]) -> dict[str, str]:
  """Returns the remedies for flags on a command line that do not exist.

  Args:
    argv: The command line.

  Returns:
    The remedies by the names as typed.
  """
  typed = [word.lstrip('-').partition('=')[0] for word in argv]
  return {
    name: hint
    for name in typed
    for known, hint in _HINTS.items()
    if name.replace('-', '_') == known
    or (known.endswith('.') and name.startswith(known))
  }


def run(
  name: str,
  scenarios: Sequence[str],
  argv: Sequence[str],
  progress: progress_lib.Progress | None = None,
  then: Callable[[Sequence[str]], None] = lambda directories: None,
) -> int:
  """Runs the jobs that the flags describe and reports their results.

  A job whose result is stored runs again only with --rerun.

  Args:
    name: The name of the program. Error messages begin with it.
    scenarios: LoadGen's names of the scenarios.
    argv: The arguments of the program, without flags.
    progress: The output for progress messages; None: standard output.
    then: A function that receives the directories of all results if all jobs
      have passed. Its errors are reported like the failure of a job.

  Returns:
    The exit code: 0 if LoadGen reports VALID runs and the answers pass.

  Raises:
    app.UsageError: The command has arguments.
  """
  if len(argv) > 1:
    raise app.UsageError(f'unexpected argument {argv[1]!r}')
  for number in _ENDING:
    # nohup and a shell's background ignore signals, and that stays so.
    if signal.getsignal(number) is not signal.SIG_IGN:
      signal.signal(number, _end)
  try:
    problems, directories = _run(scenarios, progress or progress_lib.Progress())
    if not problems:
      then(directories)
  except _Ended as end:
    cause = (
      'interrupted'
      if end.signal == signal.SIGINT
      else f'ended by {end.signal.name}'
    )
    return _failed(
      name, f'{cause}. All started processes are stopped', 128 + end.signal
    )
  except OSError as error:
    return _failed(name, _text(error))
  except (errors.SaxError, harness_errors.HarnessError, ValueError) as error:
    return _failed(name, str(error))
  return _failed(name, '; '.join(problems)) if problems else 0


def _run(
  scenarios: Sequence[str], progress: progress_lib.Progress
) -> tuple[list[str], list[str]]:
  """Runs the jobs that have no stored result.

  Returns:
    The problems of jobs that did not pass, and the directories of all results.
  """
  problems: list[str] = []
  paths: list[str] = []
  cache, results_dir, jobs = job_lib.jobs(scenarios)
  directories = recording.Directories(
    store_lib.Store(cache.results), results_dir, len(scenarios) > 1
  )
  todo = []
  for job in jobs:
    stored = None if job_lib.RERUN.value else directories.stored(job)
    if stored is None:
      todo.append(job)
    else:
      problems += _show_stored(stored, progress)
      paths.append(stored.directory)
  if not todo:
    return problems, paths
  with directories.begin(todo) as placed:
    recorder = recording.Recorder(placed[0])
    for job, outcome in scenario_run.run_jobs(placed, progress):
      problems += _report(job, outcome, recorder, progress)
      paths.append(job.results_dir)
  return problems, paths


def _report(
  job: job_lib.Job,
  outcome: recording.Outcome,
  recorder: recording.Recorder,
  progress: progress_lib.Progress,
) -> list[str]:
  """Writes and prints the report of a scenario; returns its problems."""
  text = outcome.report()
  path = recording.write_report(job.results_dir, job.load.scenario, text)
  entry = recorder.entry(job, outcome)
  entry.write(job.results_dir)
  progress.text(f'\n{text}\nlogs and this report: {path}\nresult {entry.id}')
  return outcome.problems()


def _show_stored(
  stored: store_lib.Stored, progress: progress_lib.Progress
) -> list[str]:
  """Prints the report of an earlier run; returns its problems."""
  path = os.path.join(stored.directory, recording.REPORT)
  with open(path, encoding='utf-8') as file:
    report = file.read()
  progress.text(
    f'{report}\nresult {stored.id} of {stored.entry.began}, in'
    f' {stored.directory}; --rerun runs the job again'
  )
  return list(stored.entry.notes.get(recording.PROBLEMS, ()))


class _Ended(BaseException):
  """A signal that ends the program. Later signals have no effect."""

  def __init__(self, number: int):
    super().__init__(number)
    self.signal = signal.Signals(number)


def _end(number: int, unused_frame) -> None:
  # Unwinding the stack also stops everything that was started. A second signal,
  # such as another Ctrl-C, must not interrupt that.
  for error in _ENDING:
    signal.signal(error, signal.SIG_IGN)
  raise _Ended(number)


def _text(error: OSError) -> str:
  """Returns the text of an error, without its number if it concerns a file."""
  if error.errno == errno.ENOSPC:
    disk = f'the disk of {error.filename}' if error.filename else 'a disk'
    return f'{disk} is full. {session.MAKE_ROOM}'
  if error.filename is None or error.strerror is None:
    return str(error)
  return (
    f'{error.filename} cannot be used: {error.strerror}. Correct the path, or'
    ' make the file readable'
  )


def _failed(name: str, reason: str, code: int = 1) -> int:
  print(f'{name}: {reason}', file=sys.stderr, flush=True)
  return code
