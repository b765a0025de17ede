"""Trains the bundled GPT-J on generated news and writes an HF directory.

    bazel run //bundled/gptj:train -- --output_dir=/tmp/model \
        --log=/tmp/train_log.jsonl

The directory has to hold what `//bundled/gptj:tokenizer` writes. You may stop
the run and start it again: see `bundled/training_program.py`.
"""

import os

from absl import flags
import tokenizers
import torch
import transformers

from bundled import training_program
from bundled.gptj import gptj_torch
from bundled.gptj import training_run
from bundled.summaries import summary_run
from saxml_ext.common import program

_STEPS = flags.DEFINE_integer('steps', 3800, 'Training steps.')
_TOKENS = flags.DEFINE_integer('tokens', 4096, 'Tokens per step, padded.')


def main(argv: list[str]) -> None:
  del argv
  out = training_program.prepare()
  bpe = tokenizers.Tokenizer.from_file(os.path.join(out, 'tokenizer.json'))
  recipe = summary_run.Recipe(
    steps=_STEPS.value, tokens=_TOKENS.value, seed=training_program.SEED.value
  )
  run = training_run.start(recipe, gptj_torch.bundled_config(), bpe)
  training_program.train(run, recipe.steps, out)
  _export(run.model, out)


def _export(model: gptj_torch.GPTJ, output_dir: str) -> None:
  """Writes config.json, generation_config.json and model.safetensors."""
  hf = transformers.GPTJForCausalLM(model.config)
  missing, unexpected = hf.load_state_dict(model.state_dict(), strict=False)
  if unexpected or any('bias' not in name for name in missing):
    raise ValueError(f'names differ: {missing} {unexpected}')
  # The weights are exact in bfloat16, which saves half of the bytes. A float32
  # copy has the same values.
  hf.to(torch.bfloat16).save_pretrained(output_dir)


if __name__ == '__main__':
  program.run(main)
