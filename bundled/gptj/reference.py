r"""Runs the reference implementation on the bundled set and records it.

The reference is transformers' GPTJForCausalLM on PyTorch in float32, one
article at a time, with the generation settings of the MLPerf GPT-J benchmark.
Other programs compare their answers with the written file, without PyTorch:

    bazel run //bundled/gptj:reference -- \
        --output=bundled/gptj/reference.json

`//bundled/gptj/baselines` prints baselines for its figures.
"""

from collections.abc import Sequence
import json
import os
import time

from absl import flags

from bundled import reference_program
from bundled.gptj import reference_model
from harness.data import bundle
from harness.systems.reference import gptj
from saxml_ext.common import program
from saxml_ext.common import user_path
from saxml_ext.evaluation import dataset
from saxml_ext.evaluation import rouge
from saxml_ext.evaluation import tokenizer as tokenizer_lib

_MODEL = flags.DEFINE_string(
  'model', bundle.model_dir(), 'The Hugging Face directory of the model.'
)
_DATASET = flags.DEFINE_string(
  'dataset', bundle.eval_path(), 'The evaluation file.'
)


def main(argv: list[str]) -> None:
  del argv
  model_dir = user_path.resolve(_MODEL.value)
  articles = dataset.load_articles(
    user_path.resolve(_DATASET.value), reference_program.COUNT.value
  )
  bpe = tokenizer_lib.load(os.path.join(model_dir, 'tokenizer.json'))
  prompts = dataset.encode_prompts(articles, bpe, bundle.MAX_INPUT_LENGTH)
  began = time.monotonic()
  tokens = reference_model.generate(gptj.load(model_dir), prompts, 'reference')
  seconds = time.monotonic() - began
  scores = rouge.score_tokens(
    dict(enumerate(tokens)), [article.output for article in articles], bpe
  )
  reference_program.write(_json(tokens, scores))
  print(scores.line)
  print(f'{len(tokens)} articles in {seconds:.0f} s')


def _json(tokens: Sequence[Sequence[int]], scores: rouge.Scores) -> str:
  record = {
    'implementation': reference_program.IMPLEMENTATION,
    'generation': gptj.GENERATION,
    'max_input_length': bundle.MAX_INPUT_LENGTH,
    'rouge1': scores.rouge1,
    'rouge2': scores.rouge2,
    'rougeL': scores.rougeL,
    'gen_len': scores.gen_len,
    'gen_num': scores.gen_num,
  }
  # With one answer per line, differences are readable.
  rows = ',\n  '.join(map(json.dumps, tokens))
  head = json.dumps(record, indent=1)
  return f'{head[:-2]},\n "tokens": [\n  {rows}\n ]\n}}\n'


if __name__ == '__main__':
  program.run(main)
