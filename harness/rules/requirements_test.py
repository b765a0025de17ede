from absl.testing import absltest
from absl.testing import parameterized

from harness.rules import requirements
from harness.rules import rounds
from harness.rules import summaries

_EDGE = (rounds.SINGLE_STREAM, rounds.OFFLINE)
_DATACENTER = (rounds.SERVER, rounds.OFFLINE)


class RequirementsTest(parameterized.TestCase):
  @parameterized.parameters(
    ('v3.1', 'edge', 'gptj-99', _EDGE),
    ('v5.0', 'datacenter', 'gptj-99.9', _DATACENTER),
    ('v5.1', 'datacenter', 'gptj-99', ()),
    ('v4.1', 'datacenter', 'bert-99', _DATACENTER),
    ('v5.0', 'datacenter', 'bert-99', ()),
    ('v4.1', 'edge', 'bert-99.9', ()),
    ('v4.1', 'datacenter', 'bert-99.9', _DATACENTER),
    ('v6.1', 'edge', 'bert-99.9', _EDGE),
    ('v4.0', 'edge', 'resnet', ()),
  )
  def test_scenarios(self, round_name, category, model, expected):
    self.assertEqual(
      requirements.scenarios(round_name, category, model), expected
    )

  def test_llama_took_the_place_of_gptj(self):
    model = 'llama3.1-8b'
    self.assertEqual(requirements.scenarios('v5.0', 'datacenter', model), ())
    self.assertEqual(
      requirements.scenarios('v5.1', 'datacenter', model),
      (rounds.OFFLINE, rounds.SERVER, rounds.INTERACTIVE),
    )
    # In the edge category, the model has another name.
    self.assertEqual(requirements.scenarios('v6.1', 'edge', model), ())
    self.assertEqual(requirements.compliance_tests('v6.1', model), ('TEST06',))
    edge = 'llama3.1-8b-edge'
    self.assertEqual(
      requirements.scenarios('v6.1', 'edge', edge),
      (rounds.SINGLE_STREAM, rounds.OFFLINE),
    )
    self.assertEqual(requirements.scenarios('v6.1', 'datacenter', edge), ())
    self.assertEqual(requirements.compliance_tests('v6.1', edge), ())

  @parameterized.parameters(
    ((), ('Offline', 'Server or Interactive')),
    (('Offline',), ('Server or Interactive',)),
    (('Interactive',), ('Offline',)),
    (('Offline', 'Server'), ()),
    (('Offline', 'Interactive'), ()),
    (('Offline', 'Server', 'Interactive'), ()),
  )
  def test_closed_llama_has_one_of_two_scenarios(self, found, lacking):
    # Source: check_scenarios of submission_checker/loader.py of 2026.
    rules = ('v6.1', 'datacenter', 'llama3.1-8b')
    self.assertEqual(requirements.lacking(found, *rules), lacking)

  def test_other_models_have_all_scenarios(self):
    for model in ('llama3.1-8b-edge', 'bert-99'):
      rules = ('v6.1', 'edge', model)
      self.assertEqual(
        requirements.lacking(['Offline'], *rules), (rounds.SINGLE_STREAM,)
      )
      self.assertEqual(requirements.lacking(_EDGE, *rules), ())

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
    self.assertEqual(requirements.official_key(benchmark, scenario), key)

  def test_rounds_of_a_model(self):
    self.assertEqual(
      requirements.rounds_of('edge', 'gptj-99'),
      ('v3.1', 'v4.0', 'v4.1', 'v5.0'),
    )
    self.assertEqual(
      requirements.rounds_of('datacenter', 'bert-99'), ('v3.1', 'v4.0', 'v4.1')
    )

  def test_compliance_tests(self):
    tests = requirements.compliance_tests
    self.assertEqual(tests('v4.1', 'bert-99'), ('TEST01', 'TEST05'))
    self.assertEqual(tests('v5.0', 'bert-99.9'), ('TEST01',))
    self.assertEqual(tests('v4.1', 'gptj-99'), ())

  def test_what_changed_with_a_round(self):
    for rule, last_without in (
      (requirements.results_hold_all, 'v5.1'),
      (lambda name: not requirements.needs_mlperf_conf(name), 'v4.1'),
      (lambda name: requirements.needs_calibration(name, 'closed'), 'v5.0'),
      (lambda name: not requirements.takes_short_runs(name), 'v4.0'),
      (lambda name: not requirements.takes_parts_of_the_set(name), 'v5.1'),
    ):
      names = list(rounds.ROUNDS)
      self.assertEqual(
        [name for name in names if not rule(name)],
        names[: names.index(last_without) + 1],
      )
    self.assertFalse(requirements.needs_calibration('v6.1', 'open'))

  def test_thresholds_are_those_of_the_checker(self):
    gptj = requirements.ACCURACY['gptj-99']
    self.assertAlmostEqual(gptj['rouge1'], 42.556635)
    self.assertAlmostEqual(gptj['rouge2'], 19.922265)
    self.assertAlmostEqual(gptj['rougeL'], 29.688219)
    self.assertAlmostEqual(gptj['gen_len'], 3_615_190.2)
    high = requirements.ACCURACY['gptj-99.9']
    self.assertAlmostEqual(high['rouge1'], 42.9435135)
    self.assertAlmostEqual(requirements.ACCURACY['bert-99']['f1'], 89.96526)

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
      found = [*requirements.missed('llama3.1-8b', good | changes)]
      self.assertEqual(found, expected)
    # The reference of GPT-J has no upper bound.
    self.assertEmpty([*requirements.missed('gptj-99', {'gen_len': 10**9})])

  def test_targets(self):
    # Source: accuracy-target of tools/submission/submission_checker.py at v4.0,
    # and of submission_checker/constants.py of 2026 for Llama. The figures are
    # shares of ROUGE 42.9865, 20.1235 and 29.9881, of F1 90.874, and 90 % of
    # 4016878.
    self.assertEqual(
      requirements.ACCURACY,
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
      requirements.MOST,
      {
        'llama3.1-8b': {'gen_len': 1.1 * 8167644},
        'llama3.1-8b-edge': {'gen_len': 1.1 * 3051113},
      },
    )
    self.assertEqual(
      requirements.SHARES,
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
    self.assertEqual(
      requirements.TEST_PERCENT, {'bert-99': 1.0, 'bert-99.9': 0.1}
    )
    self.assertEqual(summaries.BENCHMARKS[rounds.GPTJ].num_beams, 4)


if __name__ == '__main__':
  absltest.main()
