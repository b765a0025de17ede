"""Every benchmark, system and scenario by one command.

Takes the flags of the published main.py of Google's GPT-J submission too, with
dashes or underscores: --scenario --model-path --dataset-path --tokenizer-path
--accuracy --log-path --log-interval --max-examples --perf-examples --short-name
--save-result --num-client-threads --mlperf-conf-path --user-conf-override-path.
"""

from collections.abc import Sequence
import shlex
import subprocess
import tempfile

from absl import flags

from harness import dashes
from harness import errors
from harness.loadgen import conf_file
from harness.loadgen import rounds
from harness.scenarios import config as config_lib
from harness.scenarios import program
from saxml_ext.common import user_path
from serve import programs
from serve import progress

_ALL = 'all'
# Published name -> ours.
_ALIASES = {
  'log_path': 'results_dir',
  'max_examples': 'sample_count',
  'perf_examples': 'buffer_count',
  'num_client_threads': 'concurrency',
}

_SCENARIO = flags.DEFINE_list(
  'scenario',
  [rounds.OFFLINE],
  f'One or more of {", ".join(rounds.SCENARIOS)}, with commas between, or all.',
)
_ACCURACY = flags.DEFINE_bool(
  'accuracy',
  None,
  'Published alias: --mode=accuracy; with --noaccuracy --mode=performance.',
)
_LOG_INTERVAL = flags.DEFINE_float(
  'log_interval',
  progress.PLAIN_INTERVAL_SECS,
  'Seconds between lines of progress, where there is no terminal.',
  lower_bound=0,
)
_QUIET = flags.DEFINE_bool(
  'quiet', False, 'Print the report alone, and nothing of the way to it.'
)
_SHORT_NAME = flags.DEFINE_string(
  'short_name',
  None,
  'Name of this run: results go to a directory of that name below'
  ' --results_dir (--log-path).',
)
_SAVE_RESULT = flags.DEFINE_bool(
  'save_result', True, 'Keep logs and result; without, they are only printed.'
)
_SUBMISSION = flags.DEFINE_string(
  'submission',
  None,
  'Flags of //harness:submission, in one string: when all scenarios have passed,'
  ' it makes a submission of their results.',
)
_MLPERF_CONF_PATH = flags.DEFINE_string(
  'mlperf_conf_path',
  None,
  'mlperf.conf of a round: chooses --round by the seeds in it. LoadGen brings'
  ' all the rest by itself.',
)
for _alias, _name in _ALIASES.items():
  flags.DEFINE_alias(_alias, _name)


def main(argv: Sequence[str]) -> int:
  try:
    scenarios = _scenarios()
    _translate()
  except (OSError, ValueError) as error:
    raise SystemExit(f'main: {error}') from error
  shown = progress.Progress(
    interval_secs=_LOG_INTERVAL.value, quiet=_QUIET.value
  )
  if _SAVE_RESULT.value:
    return program.run('main', scenarios, argv, shown, _submit)
  with tempfile.TemporaryDirectory(prefix='result_') as directory:
    flags.FLAGS.results_dir = directory
    return program.run('main', scenarios, argv, shown, _submit)


def _submit(results: Sequence[str]) -> None:
  """Makes a submission, if it is asked for.

  Raises:
    errors.HarnessError: it could not be made.
  """
  if _SUBMISSION.value is None:
    return
  command = programs.command(programs.SUBMISSION, {'result': list(results)})
  done = subprocess.run(
    [*command.argv, *shlex.split(_SUBMISSION.value)],
    env=dict(command.env),
    check=False,
  )
  if done.returncode:
    raise errors.HarnessError(
      f'//harness:submission ended with exit code {done.returncode}; the results'
      f' are kept: {", ".join(results)}'
    )


def _scenarios() -> list[str]:
  """LoadGen's names of the scenarios that are asked for.

  Raises:
    ValueError: one is not known.
  """
  if _SCENARIO.value == [_ALL]:
    return list(rounds.SCENARIOS)
  known = {_plain(name): name for name in rounds.SCENARIOS}
  found = []
  for text in _SCENARIO.value:
    name = known.get(_plain(text))
    if name is None:
      raise ValueError(
        f'--scenario={text}: choose one or more of'
        f' {", ".join(rounds.SCENARIOS)}, with commas between, or {_ALL}'
      )
    found.append(name)
  if not found:
    raise ValueError(f'--scenario is empty: choose some of {rounds.SCENARIOS}')
  return found


def _plain(name: str) -> str:
  """A scenario's name as people write it: single_stream, singlestream."""
  return name.lower().replace('_', '').replace('-', '')


def _translate() -> None:
  """Sets our flags by the published ones.

  Raises:
    OSError, ValueError: a value cannot be used.
  """
  values = flags.FLAGS
  if _ACCURACY.value is not None:
    values.mode = [
      config_lib.ACCURACY if _ACCURACY.value else config_lib.PERFORMANCE
    ]
  if _MLPERF_CONF_PATH.value:
    values.round = conf_file.round_of(
      user_path.resolve(_MLPERF_CONF_PATH.value)
    )
  if _SHORT_NAME.value is not None:
    if not values.results_dir:
      raise ValueError(
        f'--short_name={_SHORT_NAME.value} names a directory below'
        ' --results_dir (--log-path), which is not given'
      )
    values.results_dir = f'{values.results_dir}/{_SHORT_NAME.value}'


if __name__ == '__main__':
  dashes.run(main)
