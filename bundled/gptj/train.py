"""Trains the bundled GPT-J on generated news and writes an HF directory.

    bazel run //bundled/gptj:train -- --output_dir=/tmp/model \
        --log=/tmp/train_log.jsonl

The directory has to hold what `//bundled/gptj:tokenizer` writes. The run may
be stopped and started again: a checkpoint is written beside the output every
few minutes, with all that makes the run go on as if it had not been stopped,
and the log says where that was.
"""

import json
import os
import time

from absl import flags
from absl import logging
import tokenizers
import torch
import transformers

from bundled.gptj import gptj_torch
from bundled.gptj import training_run
from saxml_ext.common import program
from saxml_ext.common import user_path

_OUTPUT_DIR = flags.DEFINE_string(
  'output_dir',
  None,
  'Directory that holds tokenizer.json and receives the model.',
  required=True,
)
_STEPS = flags.DEFINE_integer('steps', 3800, 'Optimizer steps.')
_TOKENS = flags.DEFINE_integer('tokens', 4096, 'Padded tokens per step.')
_THREADS = flags.DEFINE_integer('threads', 1, 'CPU threads of PyTorch.')
_LOG = flags.DEFINE_string('log', None, 'Where to write the training log.')
_SEED = flags.DEFINE_integer('seed', 0, 'Seed of weights and of what counts.')

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
  bpe = tokenizers.Tokenizer.from_file(os.path.join(out, 'tokenizer.json'))
  recipe = training_run.Recipe(
    steps=_STEPS.value, tokens=_TOKENS.value, seed=_SEED.value
  )
  run = training_run.Run(recipe, gptj_torch.bundled_config(), bpe)
  state_path = os.path.join(out, 'training_state.pt')
  resumed = os.path.exists(state_path)
  log = _Log(user_path.resolve(_LOG.value), anew=not resumed)
  if resumed:
    run.restore(state_path)
    log.write(resumed_after_step=run.step)
  began, began_tokens = time.monotonic(), run.tokens
  while run.step < recipe.steps:
    loss = run.advance()
    if run.step % _LOG_EVERY == 0:
      seconds = time.monotonic() - began
      log.write(
        step=run.step,
        tokens=run.tokens,
        loss=round(loss, 4),
        answer_loss=round(run.answer_loss, 4),
        seconds=round(seconds, 1),
        tokens_per_second=round((run.tokens - began_tokens) / seconds),
      )
    if run.step % _SAVE_EVERY == 0:
      run.save(state_path)
  _export(run.model, out)


def _export(model: gptj_torch.GPTJ, output_dir: str) -> None:
  """Writes config.json, generation_config.json and model.safetensors."""
  hf = transformers.GPTJForCausalLM(model.config)
  missing, unexpected = hf.load_state_dict(model.state_dict(), strict=False)
  if unexpected or any('bias' not in name for name in missing):
    raise ValueError(f'names differ: {missing} {unexpected}')
  # Half the bytes; the model is bfloat16 exactly, so float32 copies agree.
  hf.to(torch.bfloat16).save_pretrained(output_dir)


if __name__ == '__main__':
  program.run(main)
