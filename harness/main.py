"""Every benchmark, system and scenario by one command.

Takes the flags of the published main.py of Google's GPT-J submission too, with
dashes or underscores: --scenario --model-path --dataset-path --tokenizer-path
--accuracy --log-path --max-examples --perf-examples --num-client-threads
--user-conf-override-path.
"""

from collections.abc import Sequence

from absl import app
from absl import flags

from harness import dashes
from harness.loadgen import rounds
from harness.scenarios import config as config_lib
from harness.scenarios import program

_ALL = 'all'
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

# Published name -> ours.
_ALIASES = {
  'log_path': 'results_dir',
  'max_examples': 'sample_count',
  'perf_examples': 'buffer_count',
  'num_client_threads': 'concurrency',
}
for _alias, _name in _ALIASES.items():
  flags.DEFINE_alias(_alias, _name)


def main(argv: Sequence[str]) -> int:
  if _ACCURACY.value is not None:
    flags.FLAGS.mode = [
      config_lib.ACCURACY if _ACCURACY.value else config_lib.PERFORMANCE
    ]
  scenarios = _scenarios()
  return program.run('main', scenarios, argv)


def _scenarios() -> list[str]:
  """LoadGen's names of the scenarios that are asked for."""
  if _SCENARIO.value == [_ALL]:
    return list(rounds.SCENARIOS)
  known = {_plain(name): name for name in rounds.SCENARIOS}
  found = []
  for text in _SCENARIO.value:
    name = known.get(_plain(text))
    if name is None:
      raise app.UsageError(
        f'--scenario={text}: choose one or more of'
        f' {", ".join(rounds.SCENARIOS)}, with commas between, or {_ALL}'
      )
    found.append(name)
  return found


def _plain(name: str) -> str:
  """A scenario's name as people write it: single_stream, singlestream."""
  return name.lower().replace('_', '').replace('-', '')


if __name__ == '__main__':
  dashes.run(main)
