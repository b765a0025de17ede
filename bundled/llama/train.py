"""Trains the bundled Llama on generated news and writes an HF directory.

    bazel run //bundled/llama:train -- --output_dir=/tmp/model \
        --log=/tmp/train_log.jsonl

The directory has to hold what `//bundled/llama:tokenizer` writes. You may stop
the run and start it again: see `bundled/training_program.py`.
"""

from absl import flags
import torch
import transformers

from bundled import training_program
from bundled.llama import llama_model
from bundled.llama import training_run
from bundled.summaries import summary_run
from saxml_ext.common import program

_STEPS = flags.DEFINE_integer('steps', 3000, 'Training steps.')
_TOKENS = flags.DEFINE_integer('tokens', 4096, 'Tokens per step, padded.')


def main(argv: list[str]) -> None:
  del argv
  out = training_program.prepare()
  recipe = summary_run.Recipe(
    steps=_STEPS.value, tokens=_TOKENS.value, seed=training_program.SEED.value
  )
  run = training_run.start(
    recipe,
    llama_model.bundled_config(),
    transformers.PreTrainedTokenizerFast.from_pretrained(out),
  )
  training_program.train(run, recipe.steps, out)
  # The weights are exact in bfloat16, which saves half of the bytes. A float32
  # copy has the same values.
  run.model.to(torch.bfloat16).save_pretrained(out)


if __name__ == '__main__':
  program.run(main)
