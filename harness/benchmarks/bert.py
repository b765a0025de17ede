"""Describes the benchmark BERT.

Source: language/bert and loadgen/mlperf.conf of mlcommons/inference.
"""

from harness.benchmarks import benchmark
from harness.rules import requirements
from harness.rules import rounds

BUNDLE = benchmark.Bundle(
  'harness/bert/bundled', 'harness/bert/bundled/squad.json'
)

_STREAM = (rounds.SINGLE_STREAM, rounds.OFFLINE)

BERT = benchmark.Benchmark(
  name='bert',
  title='BERT',
  models={'bert-99': 0.99, 'bert-99.9': 0.999},
  full_set=10833,
  categories=(
    benchmark.Category(
      requirements.DATACENTER, (rounds.SERVER, rounds.OFFLINE), last='v4.1'
    ),
    benchmark.Category(requirements.EDGE, _STREAM, models=('bert-99',)),
    benchmark.Category(
      requirements.EDGE, _STREAM, 'v5.0', models=('bert-99.9',)
    ),
  ),
  reference={'f1': 90.874},
  scores=('f1', 'exact_match'),
  bundle=BUNDLE,
  server_latency_ms=130,
  issues_equally=False,
  float32_tolerance=0.05,
  tests={'TEST01': rounds.LATEST, 'TEST05': 'v4.1'},
  test_percent={'bert-99': 1.0, 'bert-99.9': 0.1},
  family='bert',
  dtype='float32',
  input_type='int64',
  systems=('onnxruntime', 'pytorch'),
  backends={
    'reference': 'onnxruntime',
    'onnxruntime': 'onnxruntime',
    'pytorch': 'pytorch',
  },
)
