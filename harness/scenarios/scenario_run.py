"""Runs one scenario: estimates the speed, then runs every mode of the job."""

from collections.abc import Iterator, Sequence
import dataclasses
import math
import os
import pathlib
import shutil
import tempfile

from harness.energy import energy
from harness.loadgen import compliance
from harness.loadgen import loadgen_log
from harness.loadgen import run as run_lib
from harness.loadgen import settings as settings_lib
from harness.results import figures
from harness.results import job_result
from harness.results import scoring
from harness.rules import rounds
from harness.scenarios import job as job_lib
from harness.scenarios import load as load_lib
from harness.scenarios import recording
from harness.scenarios import search
from harness.scenarios import session as session_lib
from harness.scenarios import tasks
from harness.scenarios import time_plan
from serve import progress as progress_lib


def _write_scores(
  task: tasks.Task,
  accuracy_dir: pathlib.Path,
  test_dir: pathlib.Path,
  exact: bool,
) -> bool:
  """Writes both scores beside a test's logs if the test requires them.

  Args:
    task: The task that judges the answers.
    accuracy_dir: The directory with LoadGen's logs of the accuracy run.
    test_dir: The directory with LoadGen's logs of the test.
    exact: True if the system computes as the reference does.

  Returns:
    True if the test requires the scores.

  Raises:
    OSError, ValueError: The logs cannot be used.
  """
  for name in compliance.SCORES:
    (test_dir / name).unlink(missing_ok=True)
  accuracy, test = (
    directory / loadgen_log.ACCURACY_LOG
    for directory in (accuracy_dir, test_dir)
  )
  if compliance.verify_accuracy(accuracy, test).passed:
    return False
  for name in compliance.SCORES:
    with tempfile.TemporaryDirectory(prefix='scores_') as scratch:
      log = pathlib.Path(scratch, loadgen_log.ACCURACY_LOG)
      if name == compliance.BASELINE_SCORE:
        compliance.write_baseline(accuracy, test, log)
      else:
        shutil.copyfile(test, log)
      task.judge(scratch, exact)
      shutil.copyfile(
        os.path.join(scratch, scoring.ACCURACY_FILE), test_dir / name
      )
  return True


# The trial that estimates the speed of a system if no target is known. It
# starts with _TRIAL_SAMPLES samples, issued at once. If they take less than
# _TRIAL_SECS, their number grows by at most _TRIAL_GROWTH and the trial is
# repeated. A stream sends _TRIAL_QUERIES queries.
_TRIAL_SAMPLES = 64
_TRIAL_SECS = 2.0
_TRIAL_GROWTH = 16
_TRIAL_QUERIES = 16


class ScenarioRun:
  """Runs a job in a session. An instance is used once."""

  def __init__(
    self,
    job: job_lib.Job,
    session: session_lib.Session,
    progress: progress_lib.Progress,
  ):
    self._job = job
    self._session = session
    self._progress = progress
    self._load = job.load
    self._speed = load_lib.Speed()
    self._looked_up = self._tried = False
    self._warm = False

  def run(self) -> recording.Outcome:
    """Runs all modes of the job.

    Raises:
      errors.HarnessError: A process or a run failed.
      ValueError: A setting cannot be used.
    """
    job = self._job
    result = recording.Outcome(
      limits=self._limits,
      judged=self._load.execution_mode != load_lib.TEST,
      served=self._session.served,
    )
    self._session.check_streams(job.task.benchmark, self._load.scenario)
    self._look_up()
    if load_lib.FIND_PERFORMANCE in job.modes:
      if not self._tried:
        self._try_out()
      outcome = search.search(
        self._load.scenario, self._speed, self._probe, self._progress
      )
      self._speed = outcome.speed
      if job.targets_path:
        search.keep(job.targets_path, job.targets_key, outcome.speed)
        self._progress.stage(f'kept for later runs: {outcome.speed}')
      result = dataclasses.replace(
        result, probes=outcome.probes, performance=outcome.log
      )
    if self._load.needs_target and self._speed == load_lib.Speed():
      self._try_out()
    if run_lib.ACCURACY in job.modes:
      judgement, seconds = self._accuracy()
      result = dataclasses.replace(
        result, judgement=judgement, accuracy_seconds=seconds
      )
    if run_lib.PERFORMANCE in job.modes:
      with energy.Meter() as meter:
        log = self._performance()
      for problem in meter.problems:
        self._progress.stage(f'energy: {problem}')
      result = dataclasses.replace(
        result, performance=log, energy=meter.joules()
      )
    if load_lib.COMPLIANCE in job.modes:
      result = dataclasses.replace(result, tests=self._compliance())
    return result

  @property
  def _limits(self) -> rounds.TokenLimits | None:
    return self._job.task.benchmark.token_limits.get(self._load.scenario)

  def _settings(self, **changes) -> settings_lib.RunSettings:
    settings = load_lib.run_settings(
      self._load,
      self._job.task.benchmark,
      self._job.task.sample_count,
      self._speed,
    )
    return dataclasses.replace(settings, **changes)

  def work(self) -> time_plan.Work:
    """Returns the runs of the job with its known speed, or that of a trial."""
    self._session.check_streams(self._job.task.benchmark, self._load.scenario)
    self._look_up()
    given = (self._load.target_qps, self._load.target_latency_ms)
    if self._speed == load_lib.Speed() and given[self._load.streams] is None:
      self._try_out()
    speed = self._speed
    if self._tried and self._load.rules.at_once:
      # The accuracy run measures the speed of Offline better.
      self._speed, self._tried = load_lib.Speed(), False
    return time_plan.Work(
      self._load,
      self._job.task.benchmark,
      self._job.task.sample_count,
      self._job.modes,
      len(self._job.task.benchmark.compliance_tests(self._load.round)),
      speed,
    )

  def _look_up(self) -> None:
    """Uses the speed of an earlier search if no target is given."""
    if self._looked_up:
      return
    self._looked_up = True
    job = self._job
    speed = search.find(job.targets_path, job.targets_key)
    given = self._load.target_qps
    if self._load.streams:
      given = self._load.target_latency_ms
    if speed and given is None:
      self._speed = speed.speed
      self._progress.stage(
        f'using the speed that find_performance found on {speed.when}:'
        f' {speed.speed}'
      )

  def _try_out(self) -> None:
    """Estimates the speed of the system with a few samples."""
    self._tried = True
    if self._load.streams:
      self._speed = load_lib.Speed(latency_ms=self._latency_of_trial())
    else:
      rate = self._rate_of_trial()
      self._speed = load_lib.Speed(
        target_qps=rate
        * load_lib.server_share(self._load, self._job.task.benchmark)
        if self._load.rules.bounded
        else settings_lib.target_qps_from_rate(rate)
      )
    self._progress.stage(f'estimated speed: {self._speed}')

  def _rate_of_trial(self) -> float:
    """Returns the rate in samples/s for samples that are issued all at once.

    The scenarios of a session share the trial.
    """
    count = _TRIAL_SAMPLES
    while self._session.trial_rate is None:
      status, _ = self._trial(
        rounds.OFFLINE, min_query_count=count, target_qps=1.0
      )
      if status.seconds >= _TRIAL_SECS:
        self._session.trial_rate = status.done / status.seconds
      # A very short trial is inaccurate, so the growth factor is limited.
      factor = _TRIAL_SECS / max(status.seconds, _TRIAL_SECS / _TRIAL_GROWTH)
      count = math.ceil(1.25 * count * factor)
    return self._session.trial_rate

  def _latency_of_trial(self) -> float:
    """Returns the expected latency of a query in ms, for LoadGen.

    LoadGen prepares as many queries as fit into twice min_duration at that
    latency. If LoadGen then sends all of them, the latency must not be too low.
    Otherwise a low value is safe, because samples differ in length.
    """
    _, log = self._trial(
      self._load.scenario,
      min_query_count=_TRIAL_QUERIES,
      max_query_count=_TRIAL_QUERIES,
      target_latency_ms=1.0,
    )
    latency = figures.number(log, self._load.rules.latency_key('50.00')) / 1e6
    return latency if self._settings().issues_equally else latency / 4

  def _trial(self, scenario: str, **changes):
    return self._loadgen(
      run_lib.PERFORMANCE,
      'trial',
      'trial',
      self._settings(
        **{
          'scenario': scenario,
          'min_duration_ms': 0,
          'max_query_count': 0,
          'equal_issue': False,
          'target_qps': None,
          'target_latency_ms': None,
        }
        | changes
      ),
    )

  def _probe(self, speed: load_lib.Speed, number: int) -> search.Trial:
    """Performs one run of a search."""
    self._speed = speed
    _, log = self._loadgen(
      run_lib.PERFORMANCE,
      os.path.join(run_lib.PERFORMANCE, 'run_1'),
      f'probe {number}',
      self._settings(
        target_qps=speed.target_qps,
        **{'target_latency_ms': speed.latency_ms} if self._load.streams else {},
      ),
    )
    return search.Trial(
      log,
      loadgen_log.read_timeline(
        os.path.join(
          self._job.results_dir,
          session_lib.TIMELINES,
          f'{run_lib.PERFORMANCE}.csv',
        )
      ),
      self._limits,
    )

  def _accuracy(self) -> tuple[scoring.Judgement, float]:
    """Runs every sample once; returns the judgement and the run's seconds."""
    status, log = self._loadgen(
      run_lib.ACCURACY, run_lib.ACCURACY, 'accuracy run', self._settings()
    )
    _check(log, 'accuracy run')
    if (
      self._load.rules.at_once
      and self._speed.target_qps is None
      and status.seconds > 0
    ):
      rate = status.done / status.seconds
      self._speed = load_lib.Speed(
        target_qps=settings_lib.target_qps_from_rate(rate)
      )
    self._progress.stage('scoring')
    judgement = self._job.task.judge(
      log.directory, self._session.exact, self._session.other_search
    )
    return judgement, status.seconds

  def _performance(self) -> loadgen_log.RunLog:
    _, log = self._loadgen(
      run_lib.PERFORMANCE,
      os.path.join(run_lib.PERFORMANCE, 'run_1'),
      'performance run',
      self._settings(),
    )
    return log

  def _compliance(self) -> dict[str, compliance.Verdict]:
    """Repeats the performance run for each compliance test of the round."""
    verdicts = {}
    for test in self._job.task.benchmark.compliance_tests(self._load.round):
      _, log = self._loadgen(
        run_lib.PERFORMANCE,
        os.path.join(job_result.COMPLIANCE, test),
        f'compliance run {test}',
        self._settings(max_query_count=0),  # The test has its own minimum.
        test,
      )
      _check(log, f'compliance run {test}')
      accuracy = os.path.join(self._job.results_dir, run_lib.ACCURACY)
      if test == compliance.TEST01 and os.path.isdir(accuracy):
        if _write_scores(
          self._job.task,
          pathlib.Path(accuracy),
          pathlib.Path(log.directory),
          self._session.exact,
        ):
          self._progress.stage(
            'answers differ from the accuracy run, so both are scored'
          )
      elif test == compliance.TEST06:
        end_ids = self._job.task.parameters[tasks.END_IDS]
        assert isinstance(end_ids, list)
        verdicts[test] = compliance.judge_tokens(
          pathlib.Path(log.directory), self._load.scenario, end_ids
        )
    return verdicts

  def _loadgen(self, mode, name, label, settings, test=None):
    warm_up, self._warm = not self._warm, True
    return self._session.run(
      self._job,
      mode,
      os.path.join(self._job.results_dir, name),
      settings,
      label=label,
      warm_up=warm_up,
      test=test,
    )


def run_jobs(
  jobs: Sequence[job_lib.Job], progress: progress_lib.Progress
) -> Iterator[tuple[job_lib.Job, recording.Outcome]]:
  """Runs jobs that share a system and yields each outcome when it is known.

  When the iteration ends or raises, everything that was started is stopped.

  Raises:
    errors.HarnessError: A process, the cell or a run failed.
    SaxError: The cell rejected a request.
    ValueError: A setting cannot be used.
  """
  first = jobs[0]
  log_dir = os.path.join(first.results_dir, 'logs')
  with session_lib.started(first.system, log_dir, progress) as session:
    for job in jobs:
      os.makedirs(job.results_dir, exist_ok=True)
    runs = [ScenarioRun(job, session, progress) for job in jobs]
    if len(jobs) > 1 and first.load.execution_mode != load_lib.TEST:
      plan = time_plan.text([run.work() for run in runs])
      progress.text(f'\n{plan}\n')
    for job, run in zip(jobs, runs):
      yield job, run.run()


def _check(log: loadgen_log.RunLog, label: str) -> None:
  if log.problems:
    raise session_lib.RunError(
      f'LoadGen logged {len(log.problems)} errors in the {label}. The first'
      f' one is: {log.problems[0]} (all in {log.directory})'
    )
