"""Runs every benchmark, system and scenario with one command.

It also accepts the flags of the published main.py of Google's GPT-J submission,
with dashes or underscores: --scenario --model-path --dataset-path
--tokenizer-path --accuracy --log-path --log-interval --max-examples
--perf-examples --short-name --save-result --num-client-threads
--mlperf-conf-path --user-conf-override-path --store-sax-accuracy
--extra-log-dir. With --log-path it behaves like that program: it performs one
run and uses the same names for the logs. That run measures performance unless
--accuracy is given.

The flags --implementation and --backend of CM choose the system.
"""

from collections.abc import Sequence
import json
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile

from absl import flags
import numpy as np

from harness import dashes
from harness import errors
from harness.benchmarks import all as benchmarks
from harness.benchmarks import benchmark as benchmark_lib
from harness.loadgen import compliance
from harness.loadgen import loadgen_log
from harness.loadgen import run as run_lib
from harness.rules import rounds
from harness.scenarios import flag_table
from harness.scenarios import job as job_lib
from harness.scenarios import load as load_lib
from harness.scenarios import program
from saxml_ext.common import user_path
from serve import programs
from serve import progress

# The file of answers beside LoadGen's own log, in this format:
# [{"qsl_idx": 0, "data": "1,2,3"}, ...]
_ANSWERS = 'sax_accuracy.json'

# The folder with the logs of a job, by mode.
_RUNS = {
  run_lib.ACCURACY: run_lib.ACCURACY,
  run_lib.PERFORMANCE: os.path.join(run_lib.PERFORMANCE, 'run_1'),
}


def write_published_logs(
  directory: str, scenarios: Sequence[str], *, extra_dir: bool, answers: bool
) -> None:
  """Copies the logs of jobs that have run and skips the other jobs.

  Args:
    directory: The directory of the jobs, --log-path.
    scenarios: LoadGen's names of the jobs' scenarios.
    extra_dir: True if logs go to a directory such as Offline_accuracy.
    answers: True if sax_accuracy.json is written too.

  Raises:
    OSError: A log cannot be read or written.
  """
  for scenario in scenarios:
    job = directory
    if len(scenarios) > 1:
      job = os.path.join(directory, scenario)
    for mode, run in _RUNS.items():
      source = os.path.join(job, run)
      if not os.path.isdir(source):
        continue
      target = directory
      if extra_dir:
        target = os.path.join(directory, f'{scenario}_{mode}')
      os.makedirs(target, exist_ok=True)
      for name in sorted(set(os.listdir(source)) - {run_lib.FILE}):
        shutil.copy(os.path.join(source, name), target)
      log = os.path.join(source, loadgen_log.ACCURACY_LOG)
      if answers and mode == run_lib.ACCURACY and os.path.isfile(log):
        path = os.path.join(directory, _ANSWERS)
        _write_answers(log, path, _benchmark().dtype)


def _write_answers(log: str, path: str, dtype: str) -> None:
  answers = []
  for index, data in compliance.answers(pathlib.Path(log)):
    ids = np.frombuffer(bytes.fromhex(data), dtype)
    answers.append({'qsl_idx': index, 'data': ','.join(map(str, ids))})
  with open(path, 'w', encoding='utf-8') as file:
    json.dump(answers, file)


_ALL = 'all'
# The published names of flags, mapped to our names.
_ALIASES = {
  'log_path': 'results_dir',
  'max_examples': 'sample_count',
  'perf_examples': 'buffer_count',
  'num_client_threads': 'concurrency',
}

_SCENARIO = flags.DEFINE_list(
  'scenario',
  [rounds.OFFLINE],
  f'The scenarios, separated by commas: {", ".join(rounds.SCENARIOS)}, or all.'
  ' With --category, all means the scenarios of the category.',
)
_ACCURACY = flags.DEFINE_bool(
  'accuracy',
  None,
  'The published name of --mode=accuracy. --noaccuracy means'
  ' --mode=performance.',
)
_LOG_INTERVAL = flags.DEFINE_float(
  'log_interval',
  progress.PLAIN_INTERVAL_SECS,
  'The seconds between lines of progress if the output is not a terminal.',
  lower_bound=0,
)
_QUIET = flags.DEFINE_bool(
  'quiet', False, 'Print only the report, without progress.'
)
_SHORT_NAME = flags.DEFINE_string(
  'short_name',
  None,
  'The name of this run. The results are written to a directory of this name'
  ' in --results_dir (--log-path).',
)
_SAVE_RESULT = flags.DEFINE_bool(
  'save_result',
  True,
  'Keep the logs and the result. Otherwise, they are only printed.',
)
_SUBMISSION = flags.DEFINE_string(
  'submission',
  None,
  'The flags of //harness:submission in one string. If all scenarios pass, it'
  ' makes a submission of their results.',
)
_MLPERF_CONF_PATH = flags.DEFINE_string(
  'mlperf_conf_path',
  None,
  'The mlperf.conf of a round. Its seeds select --round. LoadGen contains all'
  ' other settings.',
)
_STORE_SAX_ACCURACY = flags.DEFINE_bool(
  'store_sax_accuracy',
  None,
  f'Also write the answers of an accuracy run to {_ANSWERS} in --log_path.'
  ' Default: only with --log_path.',
)
_EXTRA_LOG_DIR = flags.DEFINE_bool(
  'extra_log_dir',
  None,
  'Write logs to a subdirectory of --log_path, such as Offline_accuracy,'
  ' instead of --log_path itself. Default: only with --log_path.',
)
_IMPLEMENTATION = flags.DEFINE_enum(
  'implementation',
  None,
  ['reference'],
  "CM's name of the system. The reference of BERT runs in --backend.",
)
_BACKEND = flags.DEFINE_enum(
  'backend',
  None,
  sorted({n for b in benchmarks.BENCHMARKS.values() for n in b.backends}),
  "CM's name of the framework. It selects the system, like --system.",
)
for _alias, _name in _ALIASES.items():
  flags.DEFINE_alias(_alias, _name)


def main(argv: Sequence[str]) -> int:
  with dashes.exit_on('main'):
    _translate()
    scenarios = _scenarios()
  shown = progress.Progress(
    interval_secs=_LOG_INTERVAL.value, quiet=_QUIET.value
  )
  if not _SAVE_RESULT.value:
    with tempfile.TemporaryDirectory(prefix='result_') as directory:
      flags.FLAGS.results_dir = directory
      return program.run('main', scenarios, argv, shown, _submit)
  code = program.run('main', scenarios, argv, shown, _submit)
  if _is_published():
    write_published_logs(
      user_path.resolve(flags.FLAGS.results_dir),
      scenarios,
      extra_dir=_EXTRA_LOG_DIR.value is not False,
      answers=_STORE_SAX_ACCURACY.value is not False
      and _benchmark().summarizes,
    )
  return code


def _is_published() -> bool:
  """Returns True if the command uses --log-path, like the published main.py."""
  return bool(flags.FLAGS['log_path'].present)


def _benchmark() -> benchmark_lib.Benchmark:
  return benchmarks.MODELS[job_lib.MODEL.value]


def _submit(results: Sequence[str]) -> None:
  """Creates a submission if --submission is given.

  Raises:
    errors.HarnessError: The submission could not be created.
  """
  if _SUBMISSION.value is None:
    return
  command = programs.command(programs.SUBMISSION, {'result': list(results)})
  done = subprocess.run(
    [*command.argv, *_category_flags(), *shlex.split(_SUBMISSION.value)],
    env=dict(command.env),
    check=False,
  )
  if done.returncode:
    raise errors.HarnessError(
      f'//harness:submission ended with exit code {done.returncode}. The'
      f' results are kept: {", ".join(results)}'
    )


def _category_flags() -> list[str]:
  """Returns the flags of a run that also apply to its submission."""
  return [
    f'--{flag.name}={flag.value}'
    for flag in (job_lib.CATEGORY, job_lib.DIVISION)
    if flag.value
  ]


def _scenarios() -> list[str]:
  """Returns LoadGen's names of the scenarios that the flags select.

  Raises:
    ValueError: A scenario is unknown.
  """
  category, model = job_lib.CATEGORY.value, job_lib.MODEL.value
  if _SCENARIO.value == [_ALL] and category:
    round_name = load_lib.round_name(_benchmark())
    scenarios = list(_benchmark().required(round_name, category, model))
    if not scenarios:
      raise ValueError(
        f'--category={category}: {round_name} has no scenario of {model} in'
        ' this category. Choose another --round or --category, or name the'
        ' scenarios.'
      )
    return scenarios
  if _SCENARIO.value == [_ALL]:
    return list(_benchmark().scenarios)
  known = {_plain(name): name for name in rounds.SCENARIOS}
  scenarios = []
  for text in _SCENARIO.value:
    name = known.get(_plain(text))
    if name is None:
      raise ValueError(
        f'--scenario={text} is unknown. Choose one or more of'
        f' {", ".join(rounds.SCENARIOS)}, separated by commas, or {_ALL}.'
      )
    scenarios.append(name)
  if not scenarios:
    raise ValueError(
      f'--scenario is empty. Choose from {", ".join(rounds.SCENARIOS)}.'
    )
  return scenarios


def _plain(name: str) -> str:
  """Returns a scenario's name in lower case, without dashes and underscores."""
  return name.lower().replace('_', '').replace('-', '')


def _translate() -> None:
  """Sets our flags from the published ones.

  Raises:
    OSError, ValueError: A value cannot be used.
  """
  values = flags.FLAGS
  published = _is_published()
  if _ACCURACY.value is not None or (published and not _given('mode')):
    _set(
      _ACCURACY,
      'mode',
      [run_lib.ACCURACY if _ACCURACY.value else run_lib.PERFORMANCE],
    )
  if _MLPERF_CONF_PATH.value:
    path = user_path.resolve(_MLPERF_CONF_PATH.value)
    _set(_MLPERF_CONF_PATH, 'round', rounds.round_of(path))
  for flag in (_IMPLEMENTATION, _BACKEND):
    system = _benchmark().backends.get(flag.value)
    if flag.value and not system:
      raise ValueError(
        f'--{flag.name}={flag.value} does not run {job_lib.MODEL.value}.'
        f' Choose one of {", ".join(_benchmark().backends)}.'
      )
    if system and not (flag is _IMPLEMENTATION and _BACKEND.value):
      _set(flag, 'system', system)
  served = job_lib.kind(_benchmark()) in flag_table.SERVING
  if published and served and not _given('warm_up'):
    values.warm_up = run_lib.WARM_UP_BURSTS
    if not _given('warm_up_rest_secs'):
      values.warm_up_rest_secs = run_lib.WARM_UP_SECS
  if not published:
    for flag in (_STORE_SAX_ACCURACY, _EXTRA_LOG_DIR):
      if flag.value is not None:
        raise ValueError(
          f'--{flag.name} has no effect without --log_path, the directory of'
          f' the published log names. Pass --log_path, or omit --{flag.name}.'
        )
  if _SHORT_NAME.value is not None:
    if not values.results_dir:
      raise ValueError(
        f'--short_name={_SHORT_NAME.value} names a subdirectory of'
        ' --results_dir (--log-path), which is not set.'
      )
    values.results_dir = f'{values.results_dir}/{_SHORT_NAME.value}'


def _given(name: str) -> bool:
  return bool(flags.FLAGS[name].present)


def _set(published: flags.FlagHolder, name: str, value: object) -> None:
  """Sets a flag from a published one.

  Raises:
    ValueError: Both flags are given with different values.
  """
  if _given(name) and flags.FLAGS[name].value != value:
    raise ValueError(
      f'--{published.name}={published.value} contradicts --{name}. Omit one of'
      ' them.'
    )
  setattr(flags.FLAGS, name, value)


if __name__ == '__main__':
  dashes.run(main, program.hints(sys.argv))
