"""Logs under the names that Google's published main.py gives them."""

from collections.abc import Sequence
import json
import os
import shutil

import numpy as np

from harness.loadgen import loadgen_log
from harness.scenarios import config as config_lib

# The answers beside LoadGen's own log: [{"qsl_idx": 0, "data": "1,2,3"}, ...].
ANSWERS = 'sax_accuracy.json'

# Where a job has its logs, by mode.
_RUNS = {
  config_lib.ACCURACY: config_lib.ACCURACY,
  config_lib.PERFORMANCE: os.path.join(config_lib.PERFORMANCE, 'run_1'),
}


def write(
  directory: str, scenarios: Sequence[str], *, extra_dir: bool, answers: bool
) -> None:
  """Copies the logs of jobs that have run; those of others are left out.

  Args:
    directory: The jobs' directory, --log-path.
    scenarios: LoadGen's names of the jobs' scenarios.
    extra_dir: Whether logs get a directory such as Offline_accuracy.
    answers: Whether to write ANSWERS too.

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
      for name in sorted(os.listdir(source)):
        shutil.copy(os.path.join(source, name), target)
      log = os.path.join(source, loadgen_log.ACCURACY_LOG)
      if answers and mode == config_lib.ACCURACY and os.path.isfile(log):
        _write_answers(log, os.path.join(directory, ANSWERS))


def _write_answers(log: str, path: str) -> None:
  with open(log, encoding='utf-8') as file:
    entries = json.load(file)
  found = [
    {
      'qsl_idx': entry['qsl_idx'],
      'data': ','.join(
        map(str, np.frombuffer(bytes.fromhex(entry['data']), np.int64))
      ),
    }
    for entry in entries
  ]
  with open(path, 'w', encoding='utf-8') as file:
    json.dump(found, file)
