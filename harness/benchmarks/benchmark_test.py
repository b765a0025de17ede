from absl.testing import absltest
from absl.testing import parameterized

from harness.benchmarks import all as benchmarks
from harness.benchmarks import bert
from harness.benchmarks import gptj
from harness.benchmarks import llama
from harness.rules import rounds

_EDGE = (rounds.SINGLE_STREAM, rounds.OFFLINE)
_DATACENTER = (rounds.SERVER, rounds.OFFLINE)


def _required(round_name: str, category: str, model: str) -> tuple[str, ...]:
  return benchmarks.MODELS[model].required(round_name, category, model)


class BenchmarkTest(parameterized.TestCase):
  @parameterized.parameters(
    ('v3.1', 'edge', 'gptj-99', _EDGE),
    ('v5.0', 'datacenter', 'gptj-99.9', _DATACENTER),
    ('v5.1', 'datacenter', 'gptj-99', ()),
    ('v4.1', 'datacenter', 'bert-99', _DATACENTER),
    ('v5.0', 'datacenter', 'bert-99', ()),
    ('v4.1', 'edge', 'bert-99.9', ()),
    ('v4.1', 'datacenter', 'bert-99.9', _DATACENTER),
    ('v6.1', 'edge', 'bert-99.9', _EDGE),
  )
  def test_scenarios(self, round_name, category, model, expected):
    self.assertEqual(_required(round_name, category, model), expected)

  def test_llama_took_the_place_of_gptj(self):
    model = 'llama3.1-8b'
    self.assertEqual(_required('v5.0', 'datacenter', model), ())
    self.assertEqual(
      _required('v5.1', 'datacenter', model),
      (rounds.OFFLINE, rounds.SERVER, rounds.INTERACTIVE),
    )
    # In the edge category, the model has another name.
    self.assertEqual(_required('v6.1', 'edge', model), ())
    self.assertEqual(
      benchmarks.MODELS[model].compliance_tests('v6.1'), ('TEST06',)
    )
    edge = 'llama3.1-8b-edge'
    self.assertEqual(
      _required('v6.1', 'edge', edge),
      (rounds.SINGLE_STREAM, rounds.OFFLINE),
    )
    self.assertEqual(_required('v6.1', 'datacenter', edge), ())
    self.assertEqual(benchmarks.MODELS[edge].compliance_tests('v6.1'), ())

  @parameterized.parameters(
    ((), ('Offline', 'Server or Interactive')),
    (('Offline',), ('Server or Interactive',)),
    (('Interactive',), ('Offline',)),
    (('Offline', 'Server'), ()),
    (('Offline', 'Interactive'), ()),
    (('Offline', 'Server', 'Interactive'), ()),
  )
  def test_closed_llama_has_one_of_two_scenarios(self, scenarios, lacking):
    # Source: check_scenarios of submission_checker/loader.py of 2026.
    rules = ('v6.1', 'datacenter', 'llama3.1-8b')
    self.assertEqual(llama.LLAMA.lacking(scenarios, *rules), lacking)

  def test_other_models_have_all_scenarios(self):
    for model in ('llama3.1-8b-edge', 'bert-99'):
      rules = ('v6.1', 'edge', model)
      lacking = benchmarks.MODELS[model].lacking
      self.assertEqual(lacking(['Offline'], *rules), (rounds.SINGLE_STREAM,))
      self.assertEqual(lacking(_EDGE, *rules), ())

  @parameterized.parameters(
    ('llama3_1-8b', 'Offline', 'result_tokens_per_second'),
    ('llama3_1-8b', 'Server', 'result_completed_tokens_per_second'),
    ('llama3_1-8b', 'Interactive', 'result_completed_tokens_per_second'),
    ('llama3_1-8b-edge', 'Offline', 'result_tokens_per_second'),
    ('llama3_1-8b-edge', 'SingleStream', 'result_90.00_percentile_latency_ns'),
    ('gptj', 'Offline', 'result_samples_per_second'),
    ('bert', 'SingleStream', 'early_stopping_latency_ss'),
  )
  def test_official_figures(self, benchmark, scenario, key):
    # Source: RESULT_FIELD_NEW and RESULT_FIELD_BENCHMARK_OVERWRITE of
    # submission_checker/constants.py of 2026.
    self.assertEqual(benchmarks.get(benchmark).official_key(scenario), key)

  def test_rounds_of_a_model(self):
    self.assertEqual(
      gptj.GPTJ.rounds_of('edge', 'gptj-99'),
      ('v3.1', 'v4.0', 'v4.1', 'v5.0'),
    )
    self.assertEqual(
      bert.BERT.rounds_of('datacenter', 'bert-99'), ('v3.1', 'v4.0', 'v4.1')
    )

  def test_compliance_tests(self):
    tests = bert.BERT.compliance_tests
    self.assertEqual(tests('v4.1'), ('TEST01', 'TEST05'))
    self.assertEqual(tests('v5.0'), ('TEST01',))
    self.assertEqual(gptj.GPTJ.compliance_tests('v4.1'), ())

  def test_thresholds_are_those_of_the_checker(self):
    low = gptj.GPTJ.least('gptj-99')
    self.assertAlmostEqual(low['rouge1'], 42.556635)
    self.assertAlmostEqual(low['rouge2'], 19.922265)
    self.assertAlmostEqual(low['rougeL'], 29.688219)
    self.assertAlmostEqual(low['gen_len'], 3_615_190.2)
    high = gptj.GPTJ.least('gptj-99.9')
    self.assertAlmostEqual(high['rouge1'], 42.9435135)
    self.assertAlmostEqual(bert.BERT.least('bert-99')['f1'], 89.96526)

  def test_figures_out_of_bounds(self):
    good = {
      'rouge1': 38.64,
      'rouge2': 15.87,
      'rougeL': 24.48,
      'rougeLsum': 35.67,
      'gen_len': 8_167_644,
    }
    for changes, expected in (
      ({}, []),
      ({'gen_len': 8_984_408}, []),
      (
        {'gen_len': 8_984_409},
        [('gen_len', 8_984_409, 'at most 8984408.4')],
      ),
      (
        {'rougeLsum': 35.435, 'gen_len': 7_350_879},
        [
          ('rougeLsum', 35.435, 'at least 35.43507'),
          ('gen_len', 7_350_879, 'at least 7350879.6'),
        ],
      ),
      ({'rougeLsum': None}, []),
    ):
      problems = [*llama.LLAMA.missed('llama3.1-8b', good | changes)]
      self.assertEqual(problems, expected)
    # The reference of GPT-J has no upper bound.
    self.assertEmpty([*gptj.GPTJ.missed('gptj-99', {'gen_len': 10**9})])

  def test_targets(self):
    # Source: accuracy-target of tools/submission/submission_checker.py at v4.0,
    # and of submission_checker/constants.py of 2026 for Llama. The figures are
    # shares of ROUGE 42.9865, 20.1235 and 29.9881, of F1 90.874, and 90 % of
    # 4016878.
    self.assertEqual(
      {
        name: benchmark.least(name)
        for name, benchmark in benchmarks.MODELS.items()
      },
      {
        'gptj-99': {
          'rouge1': 42.556635,
          'rouge2': 19.922265,
          'rougeL': 29.688219,
          'gen_len': 3615190.2,
        },
        'gptj-99.9': {
          'rouge1': 42.9435135,
          'rouge2': 20.1033765,
          'rougeL': 29.9581119,
          'gen_len': 3615190.2,
        },
        'bert-99': {'f1': 89.96526},
        'bert-99.9': {'f1': 90.783126},
        'llama3.1-8b': {
          'rouge1': 0.99 * 38.7792,
          'rouge2': 0.99 * 15.9075,
          'rougeL': 24.250743,
          'rougeLsum': 0.99 * 35.793,
          'gen_len': 0.9 * 8167644,
        },
        'llama3.1-8b-edge': {
          'rouge1': 38.6694,
          'rouge2': 0.99 * 16.1147,
          'rougeL': 24.391125,
          'rougeLsum': 0.99 * 36.124,
          'gen_len': 0.9 * 3051113,
        },
      },
    )
    self.assertEqual(
      {
        name: benchmark.most
        for name, benchmark in benchmarks.MODELS.items()
        if benchmark.most
      },
      {
        'llama3.1-8b': {'gen_len': 1.1 * 8167644},
        'llama3.1-8b-edge': {'gen_len': 1.1 * 3051113},
      },
    )
    self.assertEqual(
      {
        name: share
        for benchmark in benchmarks.BENCHMARKS.values()
        for name, share in benchmark.models.items()
      },
      {
        'gptj-99': 0.99,
        'gptj-99.9': 0.999,
        'bert-99': 0.99,
        'bert-99.9': 0.999,
        'llama3.1-8b': 0.99,
        'llama3.1-8b-edge': 0.99,
      },
    )
    # Source: run_verification.py and the compliance rules for differing
    # answers.
    self.assertEqual(bert.BERT.test_percent, {'bert-99': 1.0, 'bert-99.9': 0.1})
    self.assertEqual(gptj.GPTJ.search.beams, 4)

  @parameterized.parameters(
    ('v3.1', gptj.GPTJ, 24_576),
    ('v4.0', gptj.GPTJ, 13_368),
    ('v4.0', bert.BERT, 10_833),
  )
  def test_fewest_samples_of_offline(self, name, benchmark, expected):
    # Source: OFFLINE_MIN_SPQ and OFFLINE_MIN_SPQ_SINCE_V4 of
    # submission_checker.py.
    self.assertEqual(benchmark.min_queries(name, rounds.OFFLINE), expected)

  def test_limits_on_tokens(self):
    # Source: llama3_1-8b.Server and llama3_1-8b-interactive.Server in the
    # mlperf.conf of LoadGen 6.0.17.
    limits = llama.LLAMA.token_limits
    self.assertEqual(limits[rounds.SERVER], rounds.TokenLimits(2000, 100))
    self.assertEqual(limits[rounds.INTERACTIVE], rounds.TokenLimits(500, 30))
    self.assertNotIn(rounds.OFFLINE, limits)
    self.assertEmpty(gptj.GPTJ.token_limits)
    self.assertEqual(
      llama.LLAMA.loadgen_model(rounds.INTERACTIVE),
      'llama3_1-8b-interactive',
    )
    self.assertEqual(llama.LLAMA.loadgen_model(rounds.SERVER), 'llama3_1-8b')
    interactive = rounds.SCENARIOS[rounds.INTERACTIVE]
    self.assertEqual(interactive.loadgen_name, rounds.SERVER)

  def test_scenarios_of_a_benchmark(self):
    self.assertEqual(
      llama.LLAMA_EDGE.scenarios,
      (rounds.OFFLINE, rounds.SINGLE_STREAM),
    )
    self.assertNotIn(rounds.INTERACTIVE, gptj.GPTJ.scenarios)

  def test_limits(self):
    # Source: gptj.Server.target_latency and bert.Server.target_latency of
    # mlperf.conf at v4.0, and the counts of the official sets.
    self.assertEqual(gptj.GPTJ.server_latency_ms, 20_000)
    self.assertEqual(bert.BERT.server_latency_ms, 130)
    self.assertEqual(
      {
        benchmark.name: benchmark.full_set
        for benchmark in benchmarks.BENCHMARKS.values()
      },
      {
        'gptj': 13_368,
        'bert': 10_833,
        'llama3_1-8b': 13_368,
        'llama3_1-8b-edge': 5_000,
      },
    )

  def test_searches(self):
    # Source: gen_kwargs of language/gpt-j and the sampling parameters of
    # language/llama3.1-8b.
    beam, greedy = gptj.GPTJ.search, llama.LLAMA.search
    self.assertEqual(
      beam.generation,
      {
        'num_beams': 4,
        'early_stopping': True,
        'max_new_tokens': 128,
        'min_new_tokens': 30,
      },
    )
    self.assertEqual(
      greedy.generation,
      {'num_beams': 1, 'max_new_tokens': 128, 'min_new_tokens': 1},
    )
    self.assertFalse(greedy.attributes['USE_BEAM_SEARCH'])
    self.assertEqual(greedy.attributes['NUM_SAMPLES'], 1)
    self.assertEqual(beam.attributes['BEAM_SIZE'], 4)

  def test_rounds(self):
    for benchmark, first, last in (
      (gptj.GPTJ, 'v3.1', 'v5.0'),
      (bert.BERT, 'v3.1', 'v6.1'),
      (llama.LLAMA, 'v5.1', 'v6.1'),
      (llama.LLAMA_EDGE, 'v5.1', 'v6.1'),
    ):
      self.assertEqual(benchmark.first_round, first)
      self.assertEqual(benchmark.last_round, last)
      self.assertEqual(
        [name for name in rounds.ROUNDS if benchmark.is_in(name)],
        list(rounds.ROUNDS)[rounds.index(first) : rounds.index(last) + 1],
      )


if __name__ == '__main__':
  absltest.main()
