"""Describes the benchmarks Llama 3.1 8B, for datacenters and for the edge.

Source: language/llama3.1-8b and loadgen/mlperf.conf of mlcommons/inference, and
the mlperf.conf of LoadGen 6.0.17.
"""

import dataclasses

from harness.benchmarks import benchmark
from harness.rules import requirements
from harness.rules import rounds
from saxml_ext.evaluation import dataset

BUNDLE = benchmark.Bundle(
  'harness/bundled/llama',
  'harness/bundled/eval.json',
  'saxml_ext.params.llama.TinyTokenizedFP32',
  1024,
)

_FIRST = 'v5.1'

LLAMA = benchmark.Benchmark(
  name='llama3_1-8b',
  title='Llama',
  models={'llama3.1-8b': 0.99},
  full_set=13368,
  categories=(
    benchmark.Category(
      requirements.DATACENTER,
      (rounds.OFFLINE, rounds.SERVER, rounds.INTERACTIVE),
      _FIRST,
    ),
  ),
  scenarios=(rounds.OFFLINE, rounds.SERVER, rounds.INTERACTIVE),
  uses_tokens=True,
  token_limits={
    rounds.SERVER: rounds.TokenLimits(2000, 100),
    rounds.INTERACTIVE: rounds.TokenLimits(500, 30),
  },
  reference={
    'rouge1': 38.7792,
    'rouge2': 15.9075,
    'rougeL': 24.4957,
    'rougeLsum': 35.793,
  },
  reference_length=8_167_644,
  limits_length=True,
  scores=('rouge1', 'rouge2', 'rougeL', 'rougeLsum'),
  bundle=BUNDLE,
  tests={'TEST06': rounds.LATEST},
  family='llama',
  # The reference cuts no prompt. The longest has about 2,540 tokens.
  prompt=benchmark.Prompt(dataset.LLAMA_TEMPLATE, 2668, cuts=False),
  search=benchmark.Search(beams=1, min_tokens=1, max_tokens=128),
  dtype='int32',
  # vLLM, the reference of Llama, returns and counts the end id.
  logs_end=True,
)

LLAMA_EDGE = dataclasses.replace(
  LLAMA,
  name='llama3_1-8b-edge',
  models={'llama3.1-8b-edge': 0.99},
  full_set=5000,
  categories=(
    benchmark.Category(
      requirements.EDGE, (rounds.SINGLE_STREAM, rounds.OFFLINE), _FIRST
    ),
  ),
  scenarios=(rounds.OFFLINE, rounds.SINGLE_STREAM),
  token_limits={},
  reference={
    'rouge1': 39.06,
    'rouge2': 16.1147,
    'rougeL': 24.6375,
    'rougeLsum': 36.124,
  },
  reference_length=3_051_113,
  tests={},
)
