"""Starts a system and runs LoadGen against it, each run in its own process."""

from collections.abc import Iterator
import contextlib
import os
import queue
import shutil
import tempfile
import threading
import time
from typing import Any

from harness import errors
from harness.benchmarks import benchmark as benchmark_lib
from harness.loadgen import compliance
from harness.loadgen import loadgen_log
from harness.loadgen import run as run_lib
from harness.loadgen import settings as settings_lib
from harness.results import scoring
from harness.scenarios import job as job_lib
from harness.systems import launch
from saxml_ext.common import files
from serve import children
from serve import programs
from serve import progress as progress_lib

TIMELINES = 'timeline'
USER_CONF = 'user.conf'

# A size that is smaller than LoadGen's logs of the shortest run.
_LEAST_BYTES = 1 << 17
# A dead server also fails the requests of the run. The end of the server is the
# better explanation, so the process waits this long for it.
_BLAME_SECS = 1.0
_POLL_SECS = 0.2
_EXIT_SECS = 20.0
# What to do if a disk is full.
MAKE_ROOM = (
  'Existing files stay. Make room, or choose another disk with --results_dir or'
  ' --cache_dir, and run again'
)


class RunError(errors.HarnessError):
  """Raised if a LoadGen run ended before all samples were answered."""


class DiskError(errors.HarnessError):
  """Raised if the disk has no room for the results."""


@contextlib.contextmanager
def disk_errors(directory: str) -> Iterator[None]:
  """Raises an error at the end of the `with` block if the disk is full.

  This also happens if the block succeeds, because logs that are cut off at the
  end of a line appear complete.

  Args:
    directory: The directory that the block writes to.

  Raises:
    DiskError: The disk is full.
  """
  try:
    yield
  except (OSError, ValueError, errors.HarnessError) as error:
    _check_disk(directory, error)
    raise
  _check_disk(directory, None)


def _check_disk(directory: str, error: Exception | None) -> None:
  free = shutil.disk_usage(directory).free
  if free < _LEAST_BYTES:
    raise DiskError(
      f'the disk of {directory} is full: {free} bytes are left, so logs are'
      f' cut off. {MAKE_ROOM}'
    ) from error


def follow(
  group: children.Children,
  child: children.Child,
  label: str,
  progress: progress_lib.Progress,
) -> run_lib.RunStatus:
  """Waits for a run while showing its progress.

  Args:
    group: The processes to watch. If a server ends, the job ends too.
    child: The LoadGen process, started with a pipe and not watched.
    label: The name of the run in progress messages.
    progress: The output for progress messages.

  Returns:
    The last status: all samples are answered and the logs are written.

  Raises:
    RunError: The run failed. The error contains the reason.
    children.ChildError: Another process ended.
  """
  lines: queue.Queue[str | None] = queue.Queue()
  threading.Thread(target=_read, args=(child, lines), daemon=True).start()
  status = run_lib.RunStatus()
  with progress.bar(label) as bar:
    while True:
      group.check()
      try:
        line = lines.get(timeout=_POLL_SECS)
      except queue.Empty:
        continue
      if line is None:
        break
      status = run_lib.parse(line) or status
      if status.issued and not status.warm_up:
        note = progress_lib.rate_note(
          status.done, status.issued, status.seconds
        )
      else:
        note = status.warm_up or 'preparing'
      bar.update(status.done, status.issued, note)
  _check_ending(group, child, label, status)
  return status


def _read(child: children.Child, lines: 'queue.Queue[str | None]') -> None:
  with open(child.log_path, 'a', encoding='utf-8') as log:
    for data in children.output(child):
      line = data.decode('utf-8', 'replace')
      lines.put(line)
      if line.strip() and run_lib.parse(line) is None:
        log.write(line)
  lines.put(None)


def _check_ending(
  group: children.Children,
  child: children.Child,
  label: str,
  status: run_lib.RunStatus,
) -> None:
  child.process.wait(_EXIT_SECS)
  if status.finished and child.process.returncode == 0:
    return
  blame_until = time.monotonic() + _BLAME_SECS
  while time.monotonic() < blame_until:
    group.check()
    time.sleep(_POLL_SECS)
  if status.failure:
    raise RunError(
      f'the {label} failed after {status.done} of {status.issued} samples:'
      f' {status.failure}'
    )
  raise child.error()


class Session:
  """Runs LoadGen against a system.

  Attributes:
    exact: True if the system computes as the reference does.
    other_search: The difference between the system's search and the
      reference's; see launch.Started.
    served: The cell's report of its settings; see launch.Started.
    trial_rate: The rate in samples/s that a trial measured; None: no trial yet.
  """

  def __init__(self, workspace: launch.Workspace, started: launch.Started):
    self._workspace = workspace
    self._started = started
    self.exact = started.exact
    self.other_search = started.other_search
    self.served = started.served
    self.trial_rate: float | None = None
    self._runs = 0

  def check_streams(
    self, benchmark: benchmark_lib.Benchmark, scenario: str
  ) -> None:
    """Checks that the model can stream if LoadGen requires first tokens.

    Raises:
      ValueError: It cannot. The message names the remedy.
    """
    if self._started.streams is False and settings_lib.reports_first_tokens(
      benchmark, scenario
    ):
      raise ValueError(
        f'{scenario} of {benchmark.name} measures the time to the first token, but'
        ' the model does not stream: ENABLE_GENERATE_STREAM is false. Publish'
        ' it with ENABLE_GENERATE_STREAM=true, or remove that --override'
      )

  def run(
    self,
    job: job_lib.Job,
    mode: str,
    directory: str,
    settings: settings_lib.RunSettings,
    *,
    label: str,
    warm_up: bool = False,
    test: str | None = None,
  ) -> tuple[run_lib.RunStatus, loadgen_log.RunLog]:
    """Runs LoadGen once; returns its last status and its logs.

    Args:
      job: The job of the run.
      mode: The mode, accuracy or performance.
      directory: The directory for LoadGen's logs. Logs of an earlier run are
        removed.
      settings: The settings of LoadGen.
      label: The name of the run in progress messages.
      warm_up: True if the run begins with the warm-up of the job's load.
      test: The name of the compliance test of this run; None: no test.

    Raises:
      RunError: The run failed, or LoadGen logged errors.
      children.ChildError: A process ended.
    """
    loadgen_log.clear(directory)
    stale = os.path.join(directory, scoring.ACCURACY_FILE)
    if os.path.exists(stale):
      os.remove(stale)
    run = self.specification(job, mode, directory, settings, warm_up, test)
    path = os.path.join(directory, run_lib.FILE)
    files.write_json(path, run)
    progress = self._workspace.progress
    progress.stage(f'{label}: LoadGen {settings.scenario}')
    self._runs += 1
    child = self._workspace.group.start_piped(
      label,
      programs.command(self._started.program, {}, words=[path]),
      os.path.join(
        self._workspace.log_dir, f'loadgen_{self._runs:02d}_{test or mode}.log'
      ),
    )
    with disk_errors(directory):
      status = follow(self._workspace.group, child, label, progress)
      log = loadgen_log.read(directory)
    progress.stage(f'{label}: {status.done} samples in {status.seconds:.1f} s')
    return status, log

  def specification(
    self,
    job: job_lib.Job,
    mode: str,
    directory: str,
    settings: settings_lib.RunSettings,
    warm_up: bool,
    test: str | None,
  ) -> run_lib.Run[Any]:
    """Writes the user.conf of a run and returns the run's specification."""
    load = job.load
    user_conf = os.path.join(job.results_dir, USER_CONF)
    lines = (settings.user_conf + load.user_conf_extra).splitlines(True)
    with open(user_conf, 'w', encoding='utf-8') as file:
      # The user's line replaces another one with the same key.
      file.writelines({line.split()[0]: line for line in lines}.values())
    attributes = dict(settings.attributes)
    audit_conf = ''
    if test:
      attributes |= compliance.attributes(test, settings.round)
      audit_conf = _audit_conf(test, directory)
    return run_lib.Run(
      benchmark=settings.benchmark.name,
      scenario=settings.scenario,
      mode=mode,
      user_conf=user_conf,
      output_dir=directory,
      concurrency=load.in_flight(self._started.slots),
      silence_secs=load.silence_secs,
      system=self._started.system,
      samples=job.task.samples,
      loadgen_attributes=attributes,
      audit_conf=audit_conf,
      timeline=os.path.join(job.results_dir, TIMELINES, f'{test or mode}.csv'),
      buffer_count=settings.buffer_count,
      warm_up=load.warm_up if warm_up else '',
      warm_up_rest_secs=load.warm_up_rest_secs if warm_up else 0.0,
    )


def _audit_conf(test: str, directory: str) -> str:
  """Writes a test's audit.config; returns its path, or '' if it has none."""
  text = compliance.audit_config(test)
  if not text:
    return ''
  path = os.path.join(directory, 'audit.config')
  with open(path, 'w', encoding='utf-8') as file:
    file.write(text)
  return path


@contextlib.contextmanager
def started(
  system: launch.System, log_dir: str, progress: progress_lib.Progress
) -> Iterator[Session]:
  """Starts a system; stops everything at the end of the `with` block.

  Raises:
    errors.HarnessError: A process, the cell or a run failed.
    SaxError: The cell rejected a request.
  """
  with (
    tempfile.TemporaryDirectory(prefix='sax_cell_') as work_dir,
    children.Children() as group,
  ):
    workspace = launch.Workspace(group, work_dir, log_dir, progress)
    yield Session(workspace, system.start(workspace))
    progress.stage('stopping all started processes')
