"""Makes directories of jobs whose logs LoadGen itself wrote."""

import dataclasses
import datetime
import json
import pathlib
import subprocess

from harness.description import fields
from harness.loadgen import loadgen_log
from harness.loadgen import settings
from harness.results import entry as entry_lib
from harness.results import figures
from harness.rules import rounds
from harness.submission import job_result
from harness.submission import plan
from harness.submission.checks import consistency
from harness.submission.content import compliance
from serve import programs

_PROGRAM = 'harness/submission/testing/canned_run'
_SILENCE_SECS = 60
_TIME_FORMAT = '%m-%d-%Y %H:%M:%S.%f'

# Figures that are below every target, and figures that meet them all.
LOW = {
  rounds.GPTJ: {
    'rouge1': 5.1,
    'rouge2': 1.2,
    'rougeL': 4.3,
    'gen_len': 1234,
    'gen_num': 20,
  },
  rounds.BERT: {'exact_match': 1.5, 'f1': 2.5},
}
HIGH = {
  rounds.GPTJ: {
    'rouge1': 42.9865,
    'rouge2': 20.1235,
    'rougeL': 29.9881,
    'gen_len': 4016878,
    'gen_num': 13368,
  },
  rounds.BERT: {'exact_match': 83.67, 'f1': 90.8749},
}


@dataclasses.dataclass(frozen=True)
class Job:
  """What to run.

  Attributes:
    benchmark: gptj or bert.
    scenario: LoadGen's name.
    round: whose seeds and rules hold.
    model: as it is submitted; None: the benchmark's at 99 %.
    samples: of the set that LoadGen sees.
    min_duration_ms: of the performance run.
    target_qps: of it.
    target_latency_ms: of it.
    answer_secs: the least that a batch of answers takes.
    width: tokens of an answer.
    figures: of the accuracy run.
    system: kind of system that the entry names.
    parameters: of that system.
  """

  benchmark: str = rounds.GPTJ
  scenario: str = rounds.OFFLINE
  round: str = rounds.SHORT_RUNS
  model: str | None = None
  samples: int = 20
  min_duration_ms: int = 100
  target_qps: float | None = None
  target_latency_ms: float | None = None
  answer_secs: float = 0.0
  width: int = 4
  figures: dict[str, float] | None = None
  system: str = 'engine'
  parameters: dict[str, object] = dataclasses.field(
    default_factory=lambda: {
      'params': 'saxml_ext.params.gptj.TinyFP32',
      'overrides': {},
      'checkpoint': '/models/canned',
    }
  )

  @property
  def batch_secs(self) -> float:
    """How long a batch of answers takes in a performance run.

    An Offline run, all of it one query, lasts as long as its answers take.
    """
    if self.scenario == rounds.OFFLINE:
      return max(self.answer_secs, self.min_duration_ms / 1000)
    return self.answer_secs

  @property
  def settings(self) -> settings.RunSettings:
    """LoadGen's settings of the performance run."""
    full = rounds.FULL_SET[self.benchmark]
    return settings.RunSettings(
      benchmark=self.benchmark,
      scenario=self.scenario,
      round=self.round,
      sample_count=full,
      # Logged as it is, whatever the set holds.
      buffer_count=full,
      min_duration_ms=self.min_duration_ms,
      min_query_count=rounds.ROUNDS[self.round].min_queries(
        self.benchmark, self.scenario
      ),
      target_qps=self.target_qps,
      target_latency_ms=self.target_latency_ms,
    )


def system_description() -> dict[str, str]:
  """A description that lacks nothing."""
  counts = {'number_of_nodes': '1', 'accelerators_per_node': '0'}
  plain = dict.fromkeys(fields.REQUIRED, 'N/A') | counts
  return plain | {'status': 'available'}


def make(directory: pathlib.Path, job: Job) -> entry_lib.Entry:
  """Runs LoadGen for accuracy and for performance, and writes an entry."""
  directory.mkdir(parents=True)
  user_conf = directory / 'user.conf'
  user_conf.write_text(job.settings.user_conf, encoding='utf-8')
  run(job, 'accuracy', directory / 'accuracy', user_conf)
  run(job, 'performance', directory / 'performance' / 'run_1', user_conf)
  scores = job.figures or LOW[job.benchmark]
  gptj = job.benchmark == rounds.GPTJ
  line = str(scores) if gptj else json.dumps(scores)
  (directory / 'accuracy' / 'accuracy.txt').write_text(line + '\n', 'utf-8')
  run_1 = str(directory / 'performance' / 'run_1')
  entry = entry_lib.Entry(
    benchmark=job.benchmark,
    model=job.model or f'{job.benchmark}-99',
    scenario=job.scenario,
    round=job.round,
    system=job.system,
    parameters={'system': job.parameters},
    command=('./bazelw', 'run', '//harness:offline'),
    began='2026-11-22T03:00:00+00:00',
    ended='2026-11-22T03:10:00+00:00',
    versions={'mlcommons-loadgen': '6.0.17', 'commit': '69960f5'},
    description=system_description(),
    accuracy=entry_lib.Accuracy(scores, line),
    performance=figures.performance(run_1, job.scenario),
  )
  entry.write(str(directory))
  return entry


def make_compliance(
  directory: pathlib.Path, job: Job, test: str, shift: int = 0
) -> None:
  """Runs a compliance test of a job that `make` made."""
  audit = directory / 'audit.config'
  audit.write_text(compliance.audit_config(test), encoding='utf-8')
  run(
    job,
    'performance',
    directory / 'compliance' / test,
    directory / 'user.conf',
    audit_conf=str(audit) if audit.stat().st_size else '',
    attributes=compliance.attributes(test, job.round),
    shift=shift,
  )


def run(
  job: Job, mode: str, output: pathlib.Path, user_conf: pathlib.Path, **more
) -> None:
  """One LoadGen run in a process of its own.

  Raises:
    AssertionError: it failed.
  """
  output.mkdir(parents=True)
  attributes = dict(job.settings.attributes) | more.pop('attributes', {})
  command = programs.command(
    _PROGRAM,
    {
      'benchmark': job.benchmark,
      'scenario': job.scenario,
      'mode': mode,
      'user_conf': user_conf,
      'loadgen_attributes': json.dumps(attributes),
      'output_dir': output,
      'concurrency': 1_000_000,
      'silence_secs': _SILENCE_SECS,
      'samples': job.samples,
      'width': job.width,
      'logits': str(job.benchmark == rounds.BERT).lower(),
      'answer_secs': job.batch_secs if mode == 'performance' else 0,
    }
    | more,
  )
  done = subprocess.run(
    command.argv, env=command.env, capture_output=True, encoding='utf-8'
  )
  if done.returncode:
    raise AssertionError(f'{command.argv}: {done.stdout}{done.stderr}')


def change(directory: pathlib.Path, **values: object) -> None:
  """Changes what LoadGen logged of a run, wherever it stands.

  The result of the job says the same afterwards, if the run is its
  performance run.
  """
  log = loadgen_log.read(str(directory))
  edit(directory, **values)
  lines = log.summary.splitlines()
  for place, line in enumerate(lines):
    for key, shown in consistency.summary_rows(line, _scenario(log)):
      if key in values:
        lines[place] = line.removesuffix(shown) + str(values[key])
  (directory / loadgen_log.SUMMARY_LOG).write_text('\n'.join(lines), 'utf-8')
  job = directory.parents[1]
  if directory.name == 'run_1' and (job / entry_lib.FILE).is_file():
    found = figures.performance(str(directory), _scenario(log))
    entry = entry_lib.read(str(job))
    dataclasses.replace(entry, performance=found).write(str(job))


def edit(directory: pathlib.Path, **values: object) -> None:
  """Changes values of a detail log, and nothing else."""
  path = directory / loadgen_log.DETAIL_LOG
  lines = path.read_text('utf-8').splitlines()
  for place, line in enumerate(lines):
    prefix, _, text = line.partition(' ')
    record = json.loads(text)
    if record['key'] in values:
      record['value'] = values[record['key']]
      lines[place] = f'{prefix} {json.dumps(record)}'
  path.write_text('\n'.join(lines) + '\n', 'utf-8')


def last(directory: pathlib.Path, seconds: float, **values: object) -> None:
  """Stretches a run, for what takes LoadGen ten minutes."""
  log = loadgen_log.read(str(directory))
  factor = seconds / log.seconds
  end = datetime.datetime.strptime(
    str(log.values['power_begin']), _TIME_FORMAT
  ) + datetime.timedelta(seconds=seconds)
  values['power_end'] = end.strftime(_TIME_FORMAT)
  for key, value in log.values.items():
    if key.endswith('latency_ns') or key.startswith('early_stopping_latency'):
      if not key.startswith(('requested', 'effective')):
        values[key] = round(float(str(value)) * factor)
    elif key.endswith(('per_sec', 'per_second', 'loadgen_overhead')):
      values[key] = float(str(value)) / factor
  if _scenario(log) == rounds.SINGLE_STREAM:
    # Without LoadGen's share, which has been stretched as well.
    queries = int(str(log.values['result_query_count']))
    mean = round(0.9e9 * seconds / queries)
    # On a busy machine the share is small, and all queries take as long.
    least = int(str(values['result_min_latency_ns']))
    values['result_mean_latency_ns'] = max(mean, least)
  change(directory, **values)


def _scenario(log: loadgen_log.RunLog) -> str:
  return str(log.values['effective_scenario'])


def load(*directories: pathlib.Path) -> tuple[job_result.JobResult, ...]:
  """Reads jobs."""
  return tuple(job_result.load(str(directory)) for directory in directories)


def submission(
  results: tuple[job_result.JobResult, ...], **values
) -> plan.Submission:
  """A submission of results; values replace those of a plain one."""
  plain = plan.Submission(
    round=results[0].entry.round,
    division='open',
    category='edge',
    submitter='Example',
    system_name='box',
    description={},
    notes={},
    results=results,
  )
  return dataclasses.replace(plain, **values)
