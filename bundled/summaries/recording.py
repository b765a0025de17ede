"""Runs a reference implementation on the bundled articles and records it.

The reference is transformers on PyTorch in float32, one article at a time, with
the search of the benchmark. Other programs compare their answers with the
written file, without PyTorch.
"""

from collections.abc import Mapping, Sequence
import json
import os
import time
from typing import Any

from absl import flags

from bundled import reference_program
from bundled.summaries import reference_model
from harness.benchmarks import benchmark as benchmark_lib
from harness.benchmarks import gptj
from harness.systems.reference import causal_lm
from saxml_ext.common import user_path
from saxml_ext.evaluation import dataset
from saxml_ext.evaluation import rouge
from saxml_ext.evaluation import tokenizer as tokenizer_lib

_MODEL = flags.DEFINE_string(
  'model', None, 'The Hugging Face directory. Default: the bundled model.'
)
_DATASET = flags.DEFINE_string(
  'dataset', gptj.BUNDLE.dataset, 'The evaluation file.'
)


def run(benchmark: benchmark_lib.Benchmark) -> None:
  """Records the answers of a benchmark's model, as the flags describe."""
  model_dir = user_path.resolve(_MODEL.value) or benchmark.bundle.model
  length = benchmark.bundle.max_input_length
  template, search = benchmark.prompt.template, benchmark.search.generation
  articles = dataset.load_articles(
    user_path.resolve(_DATASET.value), reference_program.COUNT.value
  )
  bpe = tokenizer_lib.load(os.path.join(model_dir, 'tokenizer.json'))
  prompts = dataset.encode_prompts(articles, bpe, length, template)
  began = time.monotonic()
  model = causal_lm.load(model_dir)
  tokens = reference_model.generate(model, prompts, 'reference', search)
  seconds = time.monotonic() - began
  scores = rouge.score_tokens(
    dict(enumerate(tokens)), [article.output for article in articles], bpe
  )
  settings = {'generation': search, 'max_input_length': length}
  reference_program.write(_json(settings, tokens, scores))
  print(scores.line)
  print(f'{len(tokens)} articles in {seconds:.0f} s')


def _json(
  settings: Mapping[str, Any],
  tokens: Sequence[Sequence[int]],
  scores: rouge.Scores,
) -> str:
  record = {
    'implementation': reference_program.IMPLEMENTATION,
    **settings,
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
