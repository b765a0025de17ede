"""Defines the flags and main loop of programs that train a bundled model.

You may stop a run and start it again. A checkpoint next to the output is
written every few minutes. It has the full state, so a resumed run gives the
same result as an uninterrupted one. The log shows where a run was resumed.
"""

import json
import os
import time

from absl import flags
from absl import logging
import torch

from bundled import training
from saxml_ext.common import user_path

_OUTPUT_DIR = flags.DEFINE_string(
  'output_dir',
  None,
  'The directory of the vocabulary, to which the model is written.',
  required=True,
)
_THREADS = flags.DEFINE_integer('threads', 1, "PyTorch's number of threads.")
_LOG = flags.DEFINE_string('log', None, 'The file for the training log.')
SEED = flags.DEFINE_integer('seed', 0, 'The seed of weights and of data.')

_SAVE_EVERY = 100
_LOG_EVERY = 25


def prepare() -> str:
  """Sets PyTorch's threads and returns the absolute path of --output_dir."""
  torch.set_num_threads(_THREADS.value)
  return user_path.resolve(_OUTPUT_DIR.value)


def train(run: training.Run, steps: int, directory: str) -> None:
  """Trains until `steps` steps are done; resumes a stopped run."""
  state_path = os.path.join(directory, 'training_state.pt')
  log_path = user_path.resolve(_LOG.value)
  if os.path.exists(state_path):
    run.restore(state_path)
    _log(log_path, resumed_after_step=run.step)
  elif log_path:
    open(log_path, 'w', encoding='utf-8').close()
  began, began_tokens = time.monotonic(), run.tokens
  while run.step < steps:
    progress = run.advance()
    if run.step % _LOG_EVERY == 0:
      seconds = time.monotonic() - began
      _log(
        log_path,
        step=run.step,
        tokens=run.tokens,
        **{name: round(x, 4) for name, x in progress.items()},
        seconds=round(seconds, 1),
        tokens_per_second=round((run.tokens - began_tokens) / seconds),
      )
    if run.step % _SAVE_EVERY == 0:
      run.save(state_path)


def _log(path: str | None, **values) -> None:
  """Writes a line of JSON to the console, and to the log file if set."""
  line = json.dumps(values)
  logging.info('%s', line)
  if path:
    with open(path, 'a', encoding='utf-8') as file:
      file.write(line + '\n')
