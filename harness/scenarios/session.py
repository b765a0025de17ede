"""A started system, and LoadGen runs against it, each in its own process."""

from collections.abc import Iterator
import contextlib
import json
import os
import shutil
import tempfile

from harness import errors
from harness.loadgen import loadgen_log
from harness.loadgen import run_process
from harness.loadgen import run_status
from harness.loadgen import settings as settings_lib
from harness.results import scoring
from harness.scenarios import config as config_lib
from harness.submission.content import compliance
from harness.systems import launch
from serve import children
from serve import programs
from serve import progress as progress_lib

# Less than LoadGen's logs of the shortest run take.
_LEAST_BYTES = 1 << 17


class DiskError(errors.HarnessError):
  """There is no room for the results."""


@contextlib.contextmanager
def disk_errors(directory: str) -> Iterator[None]:
  """Blames the disk at the end of the `with` block, if it is full.

  Also when nothing failed: logs that are cut off at the end of a line look as
  if they were whole.

  Args:
    directory: where the block writes.

  Raises:
    DiskError: the disk is full.
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
      f'the disk of {directory} is full, {free} bytes are left, so that logs'
      ' are cut off; what is written so far stays. Make room there, or give'
      ' --results_dir or --cache_dir on another disk, and run again'
    ) from error


TIMELINES = 'timeline'
USER_CONF = 'user.conf'


class Session:
  """Runs LoadGen against a system.

  Attributes:
    exact: whether the system computes as the reference does.
    other_search: how its search differs from the reference's; see
      launch.Started.
    served: what a cell says that it serves; see launch.Started.
  """

  def __init__(self, place: launch.Workplace, started: launch.Started):
    self._place = place
    self._started = started
    self.exact = started.exact
    self.other_search = started.other_search
    self.served = started.served
    self._runs = 0

  def run(
    self,
    config: config_lib.JobConfig,
    mode: str,
    directory: str,
    settings: settings_lib.RunSettings,
    *,
    label: str,
    warm_up: bool = False,
    test: str | None = None,
  ) -> tuple[run_status.RunStatus, loadgen_log.RunLog]:
    """One LoadGen run; returns its last status and its logs.

    Args:
      config: the job that the run is of.
      mode: accuracy or performance.
      directory: gets LoadGen's logs; those of an earlier run are removed.
      settings: of LoadGen.
      label: what progress lines call it.
      warm_up: whether the system is warmed up as the job's load says.
      test: name of the compliance test that the run is; None: of none.

    Raises:
      run_process.RunError: the run failed, or LoadGen logged errors.
      children.ChildError: a process ended.
    """
    loadgen_log.clear(directory)
    stale = os.path.join(directory, scoring.ACCURACY_FILE)
    if os.path.exists(stale):
      os.remove(stale)
    progress = self._place.progress
    progress.stage(f'{label}: LoadGen {settings.scenario}')
    child = self._place.group.start_piped(
      label,
      self._command(config, mode, directory, settings, warm_up, test),
      os.path.join(
        self._place.log_dir, f'loadgen_{self._name(test or mode)}.log'
      ),
    )
    with disk_errors(directory):
      status = run_process.follow(self._place.group, child, label, progress)
      log = loadgen_log.read(directory)
    progress.stage(f'{label}: {status.done} samples in {status.seconds:.1f} s')
    return status, log

  def _name(self, mode: str) -> str:
    self._runs += 1
    return f'{self._runs:02d}_{mode}'

  def _command(
    self,
    config: config_lib.JobConfig,
    mode: str,
    directory: str,
    settings: settings_lib.RunSettings,
    warm_up: bool,
    test: str | None,
  ) -> programs.Command:
    """How to start a run, whose user.conf is written."""
    user_conf = os.path.join(config.results_dir, USER_CONF)
    with open(user_conf, 'w', encoding='utf-8') as file:
      file.write(settings.user_conf + config.load.user_conf_extra)
    timeline = os.path.join(
      config.results_dir, TIMELINES, f'{test or mode}.csv'
    )
    attributes = dict(settings.attributes)
    audit_conf = ''
    if test:
      attributes |= compliance.attributes(test, settings.round)
      audit_conf = _audit_conf(test, directory)
    flags = {
      'benchmark': settings.benchmark,
      'scenario': settings.scenario,
      'mode': mode,
      'user_conf': user_conf,
      'loadgen_attributes': json.dumps(attributes),
      'audit_conf': audit_conf,
      'output_dir': directory,
      'timeline': timeline,
      'buffer_count': settings.buffer_count,
      'concurrency': config.load.in_flight(self._started.slots),
      'silence_secs': config.load.silence_secs,
    }
    if warm_up and config.load.warm_up:
      flags['warm_up'] = config.load.warm_up
      flags['warm_up_rest_secs'] = config.load.warm_up_rest_secs
    return programs.command(
      self._started.program,
      flags | dict(config.task.flags) | dict(self._started.flags),
    )


def _audit_conf(test: str, directory: str) -> str:
  """Writes a test's audit.config and returns its path; '' where it has none."""
  text = compliance.audit_config(test)
  if not text:
    return ''
  path = os.path.join(directory, 'audit.config')
  with open(path, 'w', encoding='utf-8') as file:
    file.write(text)
  return path


@contextlib.contextmanager
def started(
  system: launch.Launcher, log_dir: str, progress: progress_lib.Progress
) -> Iterator[Session]:
  """Starts a system; nothing of it is left after the `with` block.

  Raises:
    errors.HarnessError: a process, the cell or a run failed.
    SaxError: the cell refused something.
  """
  with (
    tempfile.TemporaryDirectory(prefix='sax_cell_') as work_dir,
    children.Children() as group,
  ):
    place = launch.Workplace(group, work_dir, log_dir, progress)
    yield Session(place, system.start(place))
    progress.stage('stopping what was started')
