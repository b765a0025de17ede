"""Creates job directories with logs that LoadGen itself wrote."""

import dataclasses
import datetime
import json
import pathlib
import subprocess

from harness.benchmarks import benchmark as benchmark_lib
from harness.benchmarks import bert
from harness.benchmarks import gptj
from harness.benchmarks import llama
from harness.description import description as description_lib
from harness.loadgen import compliance
from harness.loadgen import loadgen_log
from harness.loadgen import settings
from harness.results import entry as entry_lib
from harness.results import figures
from harness.results import job_result
from harness.rules import rounds
from harness.submission import plan
from harness.submission.checks import consistency
from serve import programs

_PROGRAM = 'harness/submission/testing/canned_run'
_END_ID = 128009  # No canned answer has it.
_SILENCE_SECS = 60
_TIME_FORMAT = '%m-%d-%Y %H:%M:%S.%f'

# Figures that miss every target, and figures that meet all targets.
LOW = {
  gptj.GPTJ: {
    'rouge1': 5.1,
    'rouge2': 1.2,
    'rougeL': 4.3,
    'gen_len': 1234,
    'gen_num': 20,
  },
  bert.BERT: {'exact_match': 1.5, 'f1': 2.5},
  **dict.fromkeys(
    (llama.LLAMA, llama.LLAMA_EDGE),
    {
      'rouge1': 6.1,
      'rouge2': 1.2,
      'rougeL': 4.3,
      'rougeLsum': 5.3,
      'gen_len': 1234,
      'gen_num': 20,
    },
  ),
}
HIGH = {
  gptj.GPTJ: {
    'rouge1': 42.9865,
    'rouge2': 20.1235,
    'rougeL': 29.9881,
    'gen_len': 4016878,
    'gen_num': 13368,
  },
  bert.BERT: {'exact_match': 83.67, 'f1': 90.8749},
  llama.LLAMA: {
    'rouge1': 38.7792,
    'rouge2': 15.9075,
    'rougeL': 24.4957,
    'rougeLsum': 35.793,
    'gen_len': 8167644,
    'gen_num': 13368,
  },
  llama.LLAMA_EDGE: {
    'rouge1': 39.06,
    'rouge2': 16.1147,
    'rougeL': 24.6375,
    'rougeLsum': 36.124,
    'gen_len': 3051113,
    'gen_num': 5000,
  },
}
# Latencies of tokens that a busy machine does not change.
CALM = dict.fromkeys(
  (
    key.format(percentile)
    for key in (figures.FIRST_TOKEN[0], figures.PER_TOKEN[0])
    for percentile in figures.PERCENTILES
  ),
  1_000,
)


@dataclasses.dataclass(frozen=True)
class Job:
  """The settings of a job.

  Attributes:
    benchmark: The benchmark.
    scenario: The name of the scenario.
    round: The round whose seeds and rules apply.
    model: The name of the model in submissions, or None for the benchmark's
      first model.
    samples: The number of samples in the set of the system.
    min_duration_ms: The minimum duration of the performance run.
    target_qps: The target_qps of the performance run.
    target_latency_ms: The target latency of the performance run.
    answer_secs: The minimum time of a batch of answers.
    width: The number of tokens in an answer.
    figures: The figures of the accuracy run.
    system: The kind of system in the entry.
    parameters: The parameters of that system; None for a tiny model.
  """

  benchmark: benchmark_lib.Benchmark = gptj.GPTJ
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
  parameters: dict[str, object] | None = None

  @property
  def batch_secs(self) -> float:
    """The duration of a batch of answers in a performance run, in seconds.

    An Offline run is a single query, so it lasts as long as its answers.
    """
    if self.scenario == rounds.OFFLINE:
      return max(self.answer_secs, self.min_duration_ms / 1000)
    return self.answer_secs

  @property
  def settings(self) -> settings.RunSettings:
    """LoadGen's settings of the performance run."""
    full = self.benchmark.full_set
    return settings.RunSettings(
      benchmark=self.benchmark,
      scenario=self.scenario,
      round=self.round,
      sample_count=full,
      # LoadGen logs this value unchanged, for any size of the set.
      buffer_count=full,
      min_duration_ms=self.min_duration_ms,
      min_query_count=self.benchmark.min_queries(self.round, self.scenario),
      target_qps=self.target_qps,
      target_latency_ms=self.target_latency_ms,
    )


def system_description() -> dict[str, str]:
  """Returns a complete system description."""
  counts = {'number_of_nodes': '1', 'accelerators_per_node': '0'}
  plain = dict.fromkeys(description_lib.REQUIRED, 'N/A') | counts
  return plain | {'status': 'available'}


def make(directory: pathlib.Path, job: Job) -> entry_lib.Entry:
  """Runs LoadGen for accuracy and performance, and writes an entry."""
  directory.mkdir(parents=True)
  user_conf = directory / 'user.conf'
  user_conf.write_text(job.settings.user_conf, encoding='utf-8')
  run(job, 'accuracy', directory / 'accuracy', user_conf)
  run(job, 'performance', directory / 'performance' / 'run_1', user_conf)
  scores = job.figures or LOW[job.benchmark]
  summarizes = job.benchmark.summarizes
  line = str(scores) if summarizes else json.dumps(scores)
  (directory / 'accuracy' / 'accuracy.txt').write_text(line + '\n', 'utf-8')
  run_1 = str(directory / 'performance' / 'run_1')
  entry = entry_lib.Entry(
    benchmark=job.benchmark.name,
    model=job.model or next(iter(job.benchmark.models)),
    scenario=job.scenario,
    round=job.round,
    system=job.system,
    parameters={
      'system': job.parameters or _parameters(job.benchmark),
      'task': {'end_ids': [_END_ID]},
    },
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


def _parameters(benchmark: benchmark_lib.Benchmark) -> dict[str, object]:
  params = 'gptj.TinyFP32'
  if benchmark.uses_tokens:
    params = 'llama.TinyTokenizedFP32'
  return {
    'params': f'saxml_ext.params.{params}',
    'overrides': {},
    'checkpoint': '/models/canned',
  }


def make_compliance(
  directory: pathlib.Path, job: Job, test: str, shift: int = 0
) -> None:
  """Runs a compliance test of a job that `make` created."""
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
  """Runs LoadGen once in a separate process.

  Raises:
    AssertionError: The run failed.
  """
  output.mkdir(parents=True)
  attributes = dict(job.settings.attributes) | more.pop('attributes', {})
  command = programs.command(
    _PROGRAM,
    {
      'benchmark': job.benchmark.name,
      'scenario': job.scenario,
      'mode': mode,
      'user_conf': user_conf,
      'loadgen_attributes': json.dumps(attributes),
      'output_dir': output,
      'concurrency': 1_000_000,
      'silence_secs': _SILENCE_SECS,
      'samples': job.samples,
      'width': job.width,
      'logits': str(not job.benchmark.summarizes).lower(),
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
  """Changes logged values of a run in both of its logs.

  For a performance run, the job's result.json is updated too.
  """
  log = loadgen_log.read(str(directory))
  edit(directory, **values)
  lines = log.summary.splitlines()
  for number, line in enumerate(lines):
    for key, shown in consistency.summary_rows(line, _scenario(log)):
      if key in values:
        lines[number] = line.removesuffix(shown) + str(values[key])
  (directory / loadgen_log.SUMMARY_LOG).write_text('\n'.join(lines), 'utf-8')
  job = directory.parents[1]
  if directory.name == 'run_1' and (job / entry_lib.FILE).is_file():
    performance = figures.performance(str(directory), _scenario(log))
    entry = entry_lib.read(str(job))
    dataclasses.replace(entry, performance=performance).write(str(job))


def edit(directory: pathlib.Path, **values: object) -> None:
  """Changes values in a detail log only."""
  path = directory / loadgen_log.DETAIL_LOG
  lines = path.read_text('utf-8').splitlines()
  for number, line in enumerate(lines):
    prefix, _, text = line.partition(' ')
    record = json.loads(text)
    if record['key'] in values:
      record['value'] = values[record['key']]
      lines[number] = f'{prefix} {json.dumps(record)}'
  path.write_text('\n'.join(lines) + '\n', 'utf-8')


def last(directory: pathlib.Path, seconds: float, **values: object) -> None:
  """Stretches the logged times of a run, because real runs take ten minutes."""
  log = loadgen_log.read(str(directory))
  factor = seconds / log.seconds
  end = datetime.datetime.strptime(
    str(log.values['power_begin']), _TIME_FORMAT
  ) + datetime.timedelta(seconds=seconds)
  values['power_end'] = end.strftime(_TIME_FORMAT)
  for key, value in log.values.items():
    if 'first_token' in key:
      continue  # The time to the first token need not grow with the run.
    if key.endswith('latency_ns') or key.startswith('early_stopping_latency'):
      if not key.startswith(('requested', 'effective')):
        values[key] = round(float(str(value)) * factor)
    elif key.endswith(('per_sec', 'per_second', 'loadgen_overhead')):
      values[key] = float(str(value)) / factor
  if _scenario(log) == rounds.SINGLE_STREAM:
    # The mean must exclude LoadGen's overhead, which was stretched too.
    queries = int(str(log.values['result_query_count']))
    mean = round(0.9e9 * seconds / queries)
    # On a busy machine the overhead is a small share, and all queries take
    # about equally long.
    least = int(str(values['result_min_latency_ns']))
    values['result_mean_latency_ns'] = max(mean, least)
  change(directory, **values)


def _scenario(log: loadgen_log.RunLog) -> str:
  return str(log.values['effective_scenario'])


def load(*directories: pathlib.Path) -> tuple[job_result.JobResult, ...]:
  """Reads the directories of jobs."""
  return tuple(job_result.load(str(directory)) for directory in directories)


def submission(
  results: tuple[job_result.JobResult, ...], **values
) -> plan.Submission:
  """Returns a submission of results, with changed fields."""
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
