"""Trains the bundled BERT on generated questions and writes an HF directory.

    bazel run //bundled/bert:train -- --output_dir=/tmp/bert \
        --log=/tmp/train_log.jsonl

The directory has to hold what `//bundled/bert:vocabulary` writes. The
run may be stopped and started again: a checkpoint is written beside the output
every few minutes, with all that makes the run go on as if it had not been
stopped, and the log says where that was.
"""

import json
import os
import time

from absl import flags
from absl import logging
import torch
import transformers

from bundled.bert import training_run
from saxml_ext.common import program
from saxml_ext.common import user_path

_OUTPUT_DIR = flags.DEFINE_string(
  'output_dir',
  None,
  'Directory that holds vocab.txt and receives the model.',
  required=True,
)
_STEPS = flags.DEFINE_integer('steps', 2000, 'Optimizer steps.', lower_bound=1)
_TOKENS = flags.DEFINE_integer(
  'tokens', 2048, 'Padded tokens per step.', lower_bound=384
)
_THREADS = flags.DEFINE_integer('threads', 1, 'CPU threads of PyTorch.')
_LOG = flags.DEFINE_string('log', None, 'Where to write the training log.')
_SEED = flags.DEFINE_integer('seed', 0, 'Seed of weights and disturbances.')

_SAVE_EVERY = 100
_LOG_EVERY = 25


class _Log:
  """Lines of JSON in a file, if there is one, and on the console."""

  def __init__(self, path: str | None, anew: bool):
    self._path = path
    if path and anew:
      open(path, 'w', encoding='utf-8').close()

  def write(self, **values) -> None:
    line = json.dumps(values)
    logging.info('%s', line)
    if self._path:
      with open(self._path, 'a', encoding='utf-8') as file:
        file.write(line + '\n')


def main(argv: list[str]) -> None:
  del argv
  torch.set_num_threads(_THREADS.value)
  out = user_path.resolve(_OUTPUT_DIR.value)
  vocabulary = os.path.join(out, 'vocab.txt')
  if not os.path.exists(vocabulary):
    raise SystemExit(
      f'train: {vocabulary} does not exist; write it with'
      ' //bundled/bert:vocabulary'
    )
  with open(vocabulary, encoding='utf-8') as file:
    size = sum(1 for _ in file)
  recipe = training_run.Recipe(
    steps=_STEPS.value, tokens=_TOKENS.value, seed=_SEED.value
  )
  run = training_run.Run(recipe, training_run.bundled_config(size), vocabulary)
  state_path = os.path.join(out, 'training_state.pt')
  resumed = os.path.exists(state_path)
  log = _Log(user_path.resolve(_LOG.value), anew=not resumed)
  if resumed:
    run.restore(state_path)
    log.write(resumed_after_step=run.step)
  began, began_tokens = time.monotonic(), run.tokens
  while run.step < recipe.steps:
    progress = run.advance()
    if run.step % _LOG_EVERY == 0:
      seconds = time.monotonic() - began
      log.write(
        step=run.step,
        tokens=run.tokens,
        **{name: round(x, 4) for name, x in progress._asdict().items()},
        seconds=round(seconds, 1),
        tokens_per_second=round((run.tokens - began_tokens) / seconds),
      )
    if run.step % _SAVE_EVERY == 0:
      run.save(state_path)
  _export(run.model, out)


def _export(
  model: transformers.BertForQuestionAnswering, output_dir: str
) -> None:
  """Writes config.json and model.safetensors in bfloat16.

  Half the bytes; who loads them as float32 has the same numbers.
  """
  model.to(torch.bfloat16).save_pretrained(output_dir)


if __name__ == '__main__':
  program.run(main)
