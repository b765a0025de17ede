"""Runs one of the LoadGen programs on the tiny set and model."""

import json
import os
import subprocess

from harness.benchmarks import bert
from harness.bert.testing import tiny_model
from harness.bert.testing import tiny_set
from harness.loadgen import settings
from harness.rules import rounds
from saxml_ext.common.testing import modules


def run(
  module: str, directory: str, scenario: str, mode: str, *more: str
) -> subprocess.CompletedProcess:
  """Runs a program to its end.

  Args:
    module: The module of the program.
    directory: An empty directory. Logs go to its folder `logs`.
    scenario: LoadGen's name of the scenario.
    mode: The mode, accuracy or performance.
    *more: The remaining flags. The last one of a name counts.
  """
  # The first question has four windows, and the second one has one.
  questions = tiny_set.write_questions(directory, sentences=100)
  run_settings = settings.RunSettings(
    benchmark=bert.BERT,
    scenario=scenario,
    round='v4.0',
    sample_count=5,
    buffer_count=5,
    # For streams, LoadGen prepares 400 queries. It reports an error if they end
    # before this duration.
    min_duration_ms=20,
    min_query_count=10,
    target_qps=20 if scenario == rounds.SERVER else None,
    target_latency_ms=0.1 if 'Stream' in scenario else None,
  )
  user_conf = os.path.join(directory, 'user.conf')
  with open(user_conf, 'w', encoding='utf-8') as file:
    file.write(run_settings.user_conf)
  logs = os.path.join(directory, 'logs')
  os.makedirs(logs, exist_ok=True)
  return modules.run(
    module,
    f'--benchmark={bert.BERT.name}',
    f'--scenario={scenario}',
    f'--mode={mode}',
    f'--user_conf={user_conf}',
    f'--loadgen_attributes={json.dumps(run_settings.attributes)}',
    f'--output_dir={logs}',
    f'--timeline={directory}/timeline.csv',
    '--concurrency=100',
    '--silence_secs=60',
    '--warm_up=1-2',
    f'--model={tiny_model.write(directory)}',
    f'--val_data={questions}',
    f'--vocab_file={tiny_set.write_vocab(directory)}',
    '--batch_size=2',
    '--threads=1',
    *more,
  )
