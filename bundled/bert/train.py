"""Trains the bundled BERT on generated questions and writes an HF directory.

    bazel run //bundled/bert:train -- --output_dir=/tmp/bert \
        --log=/tmp/train_log.jsonl

The directory has to hold what `//bundled/bert:vocabulary` writes. You may stop
the run and start it again: see `bundled/training_program.py`.
"""

import os

from absl import flags
import torch
import transformers

from bundled import training_program
from bundled.bert import training_run
from saxml_ext.common import program

_STEPS = flags.DEFINE_integer('steps', 2000, 'Training steps.', lower_bound=1)
_TOKENS = flags.DEFINE_integer('tokens', 2048, 'Tokens per step, padded.', 384)


def main(argv: list[str]) -> None:
  del argv
  out = training_program.prepare()
  vocabulary = os.path.join(out, 'vocab.txt')
  if not os.path.exists(vocabulary):
    raise SystemExit(
      f'train: {vocabulary} does not exist. Create it with'
      ' //bundled/bert:vocabulary.'
    )
  with open(vocabulary, encoding='utf-8') as file:
    size = sum(1 for _ in file)
  recipe = training_run.Recipe(
    steps=_STEPS.value, tokens=_TOKENS.value, seed=training_program.SEED.value
  )
  run = training_run.Run(recipe, training_run.bundled_config(size), vocabulary)
  training_program.train(run, recipe.steps, out)
  _export(run.model, out)


def _export(
  model: transformers.BertForQuestionAnswering, output_dir: str
) -> None:
  """Writes config.json, and model.safetensors in bfloat16.

  The format saves half of the bytes. Loading it as float32 gives the same
  values.
  """
  model.to(torch.bfloat16).save_pretrained(output_dir)


if __name__ == '__main__':
  program.run(main)
