"""Reads the lines that a user adds to LoadGen's user.conf.

LoadGen ignores keys that it does not know, and the whole file if a value is not
a number. A line with a * has no effect if another line has the same key without
a *. So lines are checked here, and written with full names.
"""

import math
import re

from harness.benchmarks import all as benchmarks
from harness.benchmarks import benchmark as benchmark_lib
from harness.rules import rounds
from saxml_ext.common import ids

_LINE = re.compile(r'(\S+)\.(\S+)\.(\S+) = (\S+)')
_ANY = '*'
_STREAMS = (rounds.SINGLE_STREAM, rounds.MULTI_STREAM)
# The scenarios that read a key, and the lowest and the highest value.
_KEYS = {
  **dict.fromkeys(
    (
      *('min_duration', 'max_duration', 'max_query_count'),
      *('accuracy_log_rng_seed', 'accuracy_log_sampling_target'),
      *('accuracy_sample_count_override', 'performance_issue_same_index'),
    ),
    ((), 0, 2**63),
  ),
  'min_query_count': ((), 1, 2**63),
  'performance_sample_count_override': ((), 1, 2**63),
  **dict.fromkeys(
    ('performance_issue_same', 'performance_issue_unique', 'print_timestamps'),
    ((), 0, 1),
  ),
  'coalesce_queries': ((rounds.SERVER,), 0, 1),
  'max_async_queries': ((rounds.SERVER,), 0, 2**31),
  'samples_per_query': ((rounds.MULTI_STREAM,), 1, 2**31),
  'target_latency': ((*_STREAMS, rounds.SERVER), 1e-6, 1e12),
  'target_latency_percentile': ((*_STREAMS, rounds.SERVER), 1e-6, 100),
  'target_qps': ((rounds.OFFLINE, rounds.SERVER), 1e-6, 1e12),
}


def read(path: str, benchmark: benchmark_lib.Benchmark, scenario: str) -> str:
  """Returns the lines of a file that apply to a run, with full names.

  Args:
    path: The path of the file.
    benchmark: The benchmark.
    scenario: The name of the scenario.

  Raises:
    OSError: The file cannot be read.
    ValueError: A line has no effect in any run, or its value is not possible.
  """
  with open(path, encoding='utf-8') as file:
    lines = file.read().splitlines()
  model = benchmark.loadgen_model(scenario)
  name = rounds.SCENARIOS[scenario].loadgen_name
  values: dict[str, tuple[int, str]] = {}
  for number, line in enumerate(lines, 1):
    if not line.split() or line.split()[0].startswith('#'):
      continue
    try:
      names, key, value = _parse(' '.join(line.split()), name)
      if names[0] not in (_ANY, model) or names[1] not in (_ANY, name):
        continue  # It is for another run.
      if key in values:
        raise ValueError(
          f'Line {values[key][0]} sets it too. Remove one of them'
        )
    except ValueError as e:
      raise ValueError(f'{path}, line {number}: {line.strip()!r}. {e}') from e
    values[key] = number, f'{model}.{name}.{key} = {value}\n'
  return ''.join(text for _, text in values.values())


def _parse(line: str, scenario: str) -> tuple[tuple[str, str], str, str]:
  """Returns the names of the run, the key and the value of a line."""
  match = _LINE.fullmatch(line)
  if not match:
    raise ValueError(
      'Write MODEL.SCENARIO.KEY = NUMBER, with blanks around the equals sign,'
      ' and comments on lines of their own'
    )
  scenarios = {rule.loadgen_name for rule in rounds.SCENARIOS.values()}
  models = {
    benchmark.loadgen_model(name)
    for benchmark in benchmarks.BENCHMARKS.values()
    for name in rounds.SCENARIOS
  }
  for name, known in zip(
    match.groups(), ({_ANY, *models}, {_ANY, *scenarios}, _KEYS)
  ):
    if name not in known:
      near = ids.near_misses(name, known) or sorted(known)
      raise ValueError(f'{name!r} has no effect. Use {" or ".join(near)}')
  readers, least, most = _KEYS[match[3]]
  reader = scenario if match[2] == _ANY else match[2]
  if readers and reader not in readers:
    raise ValueError(f'Only {" and ".join(readers)} have {match[3]}. Remove it')
  # LoadGen cuts off the decimals of these values.
  server = (match[3], reader) == ('target_latency', rounds.SERVER)
  is_count = isinstance(least, int)
  form = '0|[1-9][0-9]*' if is_count else r'[0-9]+(\.[0-9]*)?(e[-+]?[0-9]+)?'
  value = float(match[4]) if re.fullmatch(form, match[4], re.I) else math.nan
  if not least <= value <= most or (server and value % 1):
    raise ValueError(
      f'The value must be a {"whole " * (is_count or server)}number from'
      f' {least:g} to {most:g}'
    )
  return (match[1], match[2]), match[3], match[4]
