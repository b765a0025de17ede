"""mlperf.conf, which submissions until v4.1 hold beside user.conf.

It is MLCommons' text and not part of this repository. It is taken from the
user's checkout of mlcommons/inference; without one, the settings that the run
had are written out of LoadGen's own log, in the same format.
"""

import pathlib

from harness.loadgen import loadgen_log
from harness.submission.content import git

FILE = 'mlperf.conf'
_PLACES = ('mlperf.conf', 'loadgen/mlperf.conf')

# Name in mlperf.conf by LoadGen's name of the setting in force.
_SETTINGS = {
  'effective_min_query_count': 'min_query_count',
  'effective_min_duration_ms': 'min_duration',
  'effective_performance_sample_count': 'performance_sample_count_override',
  'effective_qsl_rng_seed': 'qsl_rng_seed',
  'effective_sample_index_rng_seed': 'sample_index_rng_seed',
  'effective_schedule_rng_seed': 'schedule_rng_seed',
  'effective_sample_concatenate_permutation': 'sample_concatenate_permutation',
}


def official(inference_dir: pathlib.Path, round_name: str) -> bytes | None:
  """The round's file of a checkout; None if it has none of that round.

  Args:
    inference_dir: the checkout, whose tags are used where it has them.
    round_name: such as "v4.0".
  """
  for place in _PLACES:
    shown = git.run('-C', inference_dir, 'show', f'{round_name}:{place}')
    if shown.returncode == 0 and shown.stdout:
      return shown.stdout
  return None


def from_log(log: loadgen_log.RunLog, benchmark: str, scenario: str) -> bytes:
  """The settings that a run had, as LoadGen logged them.

  Args:
    log: of the performance run.
    benchmark: LoadGen's name of it.
    scenario: LoadGen's.
  """
  lines = ['# The settings of this run, as LoadGen logged them.']
  for key, name in _SETTINGS.items():
    value = log.values.get(key)
    if value is not None:
      lines.append(f'{benchmark}.{scenario}.{name} = {_number(value)}')
  return ('\n'.join(lines) + '\n').encode()


def _number(value: object) -> object:
  return int(value) if isinstance(value, bool) else value
