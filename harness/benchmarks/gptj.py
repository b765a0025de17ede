"""Describes the benchmark GPT-J.

Source: language/gpt-j and loadgen/mlperf.conf of mlcommons/inference.
"""

from harness.benchmarks import benchmark
from harness.rules import requirements
from harness.rules import rounds
from saxml_ext.evaluation import dataset

BUNDLE = benchmark.Bundle(
  'harness/bundled',
  'harness/bundled/eval.json',
  'saxml_ext.params.gptj.TinyTokenizedFP32',
  512,
)

GPTJ = benchmark.Benchmark(
  name='gptj',
  title='GPT-J',
  models={'gptj-99': 0.99, 'gptj-99.9': 0.999},
  full_set=13368,
  # Llama took its place in v5.1.
  categories=(
    benchmark.Category(
      requirements.DATACENTER, (rounds.SERVER, rounds.OFFLINE), last='v5.0'
    ),
    benchmark.Category(
      requirements.EDGE, (rounds.SINGLE_STREAM, rounds.OFFLINE), last='v5.0'
    ),
  ),
  reference={'rouge1': 42.9865, 'rouge2': 20.1235, 'rougeL': 29.9881},
  reference_length=4_016_878,
  scores=('rouge1', 'rouge2', 'rougeL'),
  bundle=BUNDLE,
  server_latency_ms=20_000,
  family='gptj',
  prompt=benchmark.Prompt(dataset.PROMPT_TEMPLATE, 1919, cuts=True),
  search=benchmark.Search(beams=4, min_tokens=30, max_tokens=128),
  systems=('cell', 'engine', 'reference', 'network'),
  beam_variable='GPTJ_BEAM_SIZE',
  tokens_since='v4.1',
)
