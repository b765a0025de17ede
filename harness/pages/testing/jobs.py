"""Writes job directories in the harness's layout, for tests of the pages."""

import os
from typing import Any

import numpy as np

from harness.benchmarks import gptj
from harness.loadgen import loadgen_log
from harness.results import entry as entry_lib
from harness.rules import rounds


def times(
  count: int, scenario: str, seed: int = 0, seconds: float = 60.0
) -> list[loadgen_log.Times]:
  """Returns the timeline of a system that takes about 0.5 s per sample."""
  rng = np.random.default_rng(seed)
  answering = rng.gamma(8.0, 0.06, count)
  if scenario == rounds.OFFLINE:
    issued = np.zeros(count)
    sent = np.sort(rng.uniform(0.0, seconds, count))
  else:
    issued = np.sort(rng.uniform(0.0, seconds, count))
    if scenario == rounds.MULTI_STREAM:
      issued = np.repeat(issued[::8], 8)[:count]
    issued -= issued[0]
    sent = issued + rng.exponential(0.05, count)
  tokens = rng.integers(30, 129, count)
  return [
    loadgen_log.Times(
      index=i % 512,
      issued=float(issued[i]),
      sent=float(sent[i]),
      first_token=float(sent[i] + 0.1 * answering[i]),
      done=float(sent[i] + answering[i]),
      tokens=int(tokens[i]),
    )
    for i in range(count)
  ]


def entry(scenario: str = rounds.SERVER, **changes: Any) -> entry_lib.Entry:
  """Returns the entry of a finished job, with changed fields.

  Args:
    scenario: LoadGen's name of the scenario.
    **changes: The fields of the entry to change.
  """
  fields: dict[str, Any] = {
    'benchmark': gptj.GPTJ.name,
    'model': 'gptj-99',
    'scenario': scenario,
    'round': 'v4.1',
    'system': 'cell',
    'parameters': {'min_duration': 60000, 'target_qps': 40.0},
    'command': ('./bazelw', 'run', '//harness:server', '--', '--mode=accuracy'),
    'began': '2026-11-22T02:00:00+00:00',
    'ended': '2026-11-22T02:05:00+00:00',
    'versions': {'mlcommons-loadgen': '6.0.17', 'jax': '0.9.0'},
    'hashes': {'dataset': 'ab' * 32},
    'description': {
      'system_name': 'Tiny box',
      'host_processor_model_name': 'Some CPU',
      'accelerators_per_node': 0,
    },
    'governor': 'performance',
    'accuracy': entry_lib.Accuracy(
      metrics={
        'rouge1': 71.5,
        'rouge2': 60.25,
        'rougeL': 68.125,
        'gen_len': 90_000,
        'gen_num': 512,
      },
      line="{'rouge1': 71.5}",
      reference={'rouge1': 71.5, 'rouge2': 60.25, 'rougeL': 68.125},
      identical=512,
    ),
    'performance': entry_lib.Performance(
      valid=True,
      metric='queries_per_second',
      value=40.0,
      seconds=60.0,
      samples=2400,
      tokens_per_second=3160.0,
      latency_ns={'50.00': 5e8, '90.00': 7e8, '99.00': 9.5e8},
      first_token_ns={'50.00': 1e8, '99.00': 2e8},
      summary='MLPerf Results Summary\nResult is : VALID\n',
    ),
    'energy': {'rapl': 4800.0},
  }
  return entry_lib.Entry(**(fields | changes))


def write(
  directory: str,
  result: entry_lib.Entry,
  performance: list[loadgen_log.Times] | None = None,
  accuracy: list[loadgen_log.Times] | None = None,
) -> str:
  """Writes a job's directory and returns its path."""
  os.makedirs(directory, exist_ok=True)
  result.write(directory)
  for mode, samples in (('performance', performance), ('accuracy', accuracy)):
    if samples is not None:
      path = os.path.join(directory, 'timeline', f'{mode}.csv')
      loadgen_log.write_timeline(path, samples)
  return directory
