"""Creates real logs with short LoadGen runs, for tests of log readers."""

import dataclasses
import json
import os
import subprocess
from typing import Any

from harness.benchmarks import benchmark as benchmark_lib
from harness.benchmarks import gptj
from harness.loadgen import loadgen_log
from harness.loadgen import settings
from harness.rules import rounds
from serve import programs

_PROGRAM = 'harness/results/testing/tiny_run'
SAMPLES = 8

# These settings keep runs valid on slow machines. Each batch takes a minimum
# time. Except for Server, the configured targets are faster than the system.
_SETTINGS: dict[str, dict[str, Any]] = {
  rounds.OFFLINE: {'target_qps': 1500.0},
  rounds.SERVER: {'target_qps': 500.0, 'min_query_count': 500},
  rounds.INTERACTIVE: {'target_qps': 500.0, 'min_query_count': 500},
  rounds.SINGLE_STREAM: {'target_latency_ms': 1.0, 'min_query_count': 100},
  rounds.MULTI_STREAM: {'target_latency_ms': 0.5, 'min_query_count': 662},
}
_BATCH_SECS = {
  rounds.OFFLINE: 0.02,
  rounds.SERVER: 0.005,
  rounds.INTERACTIVE: 0.005,
  rounds.SINGLE_STREAM: 0.005,
  rounds.MULTI_STREAM: 0.001,
}


@dataclasses.dataclass(frozen=True)
class Run:
  """The files of a finished run.

  Attributes:
    directory: The directory of LoadGen's logs.
    timeline: The path of the file with the times of every sample.
    user_conf: The path of LoadGen's user.conf.
  """

  directory: str
  timeline: str
  user_conf: str


def make(
  root: str,
  scenario: str,
  mode: str = 'performance',
  min_duration_ms: int = 600,
  benchmark: benchmark_lib.Benchmark = gptj.GPTJ,
  **changes: Any,
) -> Run:
  """Runs LoadGen once in a separate process.

  Args:
    root: The output directory. Its layout is that of a job's directory.
    scenario: LoadGen's name of the scenario.
    mode: The mode, performance or accuracy.
    min_duration_ms: The minimum duration of the run.
    benchmark: The benchmark.
    **changes: The changes to the RunSettings of a short, valid run.
  """
  values: dict[str, Any] = {
    'round': rounds.SHORT_RUNS,
    'sample_count': SAMPLES,
    'buffer_count': SAMPLES,
    'min_duration_ms': min_duration_ms,
    'equal_issue': False,
  }
  run = settings.RunSettings(
    benchmark, scenario, **(values | _SETTINGS[scenario] | changes)
  )
  folder = 'performance/run_1' if mode == 'performance' else mode
  directory = os.path.join(root, folder)
  loadgen_log.clear(directory)
  user_conf = os.path.join(root, 'user.conf')
  with open(user_conf, 'w', encoding='utf-8') as file:
    file.write(run.user_conf)
  timeline = os.path.join(root, 'timeline', f'{mode}.csv')
  command = programs.command(
    _PROGRAM,
    {
      'benchmark': benchmark.name,
      'scenario': scenario,
      'mode': mode,
      'user_conf': user_conf,
      'loadgen_attributes': json.dumps(run.attributes),
      'output_dir': directory,
      'timeline': timeline,
      'buffer_count': SAMPLES,
      'concurrency': 64,
      'silence_secs': 60,
      'samples': SAMPLES,
      'batch_secs': _BATCH_SECS[scenario],
    },
  )
  ended = subprocess.run(
    command.argv, env=command.env, capture_output=True, text=True, check=False
  )
  if ended.returncode:
    raise RuntimeError(f'the run failed:\n{ended.stdout}{ended.stderr}')
  return Run(directory, timeline, user_conf)
