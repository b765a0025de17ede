"""Reads the lines that a user adds to LoadGen's user.conf.

LoadGen ignores keys that it does not know, and the whole file if a value is not
a number. A line with a * has no effect if another line has the same key without
a *. So lines are checked here, and written with full names.
"""

import re

from harness.rules import rounds
from saxml_ext.common import ids

_LINE = re.compile(r'(\S+)\.(\S+)\.(\S+) = (\S+)')
_ANY = '*'
_STREAMS = (rounds.SINGLE_STREAM, rounds.MULTI_STREAM)
# The scenarios that read a key, and the lowest and the highest value.
_KEYS = {
  'accuracy_log_rng_seed': ((), 0, 2**63),
  'accuracy_log_sampling_target': ((), 0, 2**63),
  'accuracy_sample_count_override': ((), 0, 2**63),
  'coalesce_queries': ((rounds.SERVER,), 0, 1),
  'max_async_queries': ((rounds.SERVER,), 0, 2**31),
  'max_duration': ((), 0, 2**63),
  'max_query_count': ((), 0, 2**63),
  'min_duration': ((), 0, 2**63),
  'min_query_count': ((), 1, 2**63),
  'performance_issue_same': ((), 0, 1),
  'performance_issue_same_index': ((), 0, 2**63),
  'performance_issue_unique': ((), 0, 1),
  'performance_sample_count_override': ((), 1, 2**63),
  'print_timestamps': ((), 0, 1),
  'samples_per_query': ((rounds.MULTI_STREAM,), 1, 2**31),
  'target_latency': ((*_STREAMS, rounds.SERVER), 1e-6, 1e12),
  'target_latency_percentile': ((*_STREAMS, rounds.SERVER), 1e-6, 100),
  'target_qps': ((rounds.OFFLINE, rounds.SERVER), 1e-6, 1e12),
}


def read(path: str, benchmark: str, scenario: str) -> str:
  """Returns the lines of a file that apply to a run, with full names.

  Args:
    path: The path of the file.
    benchmark: LoadGen's name of the benchmark.
    scenario: The name of the scenario.

  Raises:
    OSError: The file cannot be read.
    ValueError: A line has no effect in any run, or its value is not possible.
  """
  with open(path, encoding='utf-8') as file:
    lines = file.read().splitlines()
  model = rounds.loadgen_model(benchmark, scenario)
  name = rounds.SCENARIOS[scenario].loadgen_name
  found: dict[str, tuple[int, str]] = {}
  for number, line in enumerate(lines, 1):
    if not line.split() or line.split()[0].startswith('#'):
      continue
    try:
      names, key, value = _parse(' '.join(line.split()), name)
      if names[0] not in (_ANY, model) or names[1] not in (_ANY, name):
        continue  # It is for another run.
      if key in found:
        raise ValueError(
          f'Line {found[key][0]} sets it too. Remove one of them'
        )
    except ValueError as e:
      raise ValueError(f'{path}, line {number}: {line.strip()!r}. {e}') from e
    found[key] = number, f'{model}.{name}.{key} = {value}\n'
  return ''.join(text for _, text in found.values())


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
    rounds.loadgen_model(benchmark, name)
    for benchmark in rounds.BENCHMARKS
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
  # LoadGen cuts off decimals of the latency of Server too.
  whole = isinstance(least, int) or (match[3], reader) == (
    'target_latency',
    rounds.SERVER,
  )
  form = r'0|[1-9][0-9]*' if whole else r'[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]+)?'
  if not re.fullmatch(form, match[4]) or not least <= float(match[4]) <= most:
    raise ValueError(
      f'The value must be a {"whole " * whole}number from {least:g} to {most:g}'
    )
  return (match[1], match[2]), match[3], match[4]
