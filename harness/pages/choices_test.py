"""Tests the choices and the commands that they compose."""

import shlex

from absl.testing import absltest

from harness.pages import choices
from harness.rules import rounds


def _words(**values):
  text = choices.command(choices.defaults() | values)
  return shlex.split(text.replace('\\\n', ''))


class ChoicesTest(absltest.TestCase):
  def test_what_the_page_opens_with(self):
    self.assertEqual(
      _words(),
      [
        './bazelw',
        'run',
        '//harness:main',
        '--',
        '--model=gptj-99',
        '--scenario=Offline',
        '--mode=accuracy,performance',
        '--system=cell',
      ],
    )

  def test_every_choice_of_its_options_is_one(self):
    for each in choices.CHOICES:
      self.assertIn(each.kind, ('one', 'many', 'text', 'number', 'switch'))
      self.assertEqual(bool(each.options), each.kind in ('one', 'many'))
      if each.chosen:
        self.assertIn(each.chosen, each.options)
      self.assertContainsSubset(each.benchmarks, each.options)
    flags = [each.flag for each in choices.CHOICES]
    self.assertLen(set(flags), len(flags))

  def test_flags_of_a_whole_submission(self):
    flags = {
      'sample_count': '16',
      'system_preset': 'tpu_v5e_x4',
      'warm_up': '1-32,36',
      'max_input_length': '1919',
      'concurrency': '200',
      'submission': '--submitter=Me --system_name=desk',
    }
    words = _words(**flags)
    for flag, value in flags.items():
      self.assertIn(f'--{flag}={value}', words)

  def test_what_opens_is_allowed(self):
    for each in choices.CHOICES:
      if each.kind == 'one' and each.chosen:
        self.assertTrue(each.allows(each.chosen, 'gptj-99'))

  def test_what_a_model_cannot_have(self):
    by_flag = {each.flag: each for each in choices.CHOICES}
    self.assertFalse(by_flag['round'].allows('v5.1', 'gptj-99'))
    self.assertTrue(by_flag['round'].allows('v5.0', 'gptj-99.9'))
    self.assertTrue(by_flag['round'].allows('v6.1', 'bert-99'))
    self.assertFalse(by_flag['system'].allows('cell', 'bert-99'))
    self.assertTrue(by_flag['system'].allows('pytorch', 'bert-99'))
    llama = 'llama3.1-8b'
    self.assertTrue(by_flag['system'].allows('cell', llama))
    self.assertTrue(by_flag['scenario'].allows('Offline', llama))
    self.assertTrue(by_flag['scenario'].allows('Server', llama))
    self.assertFalse(by_flag['scenario'].allows('MultiStream', llama))
    self.assertFalse(by_flag['round'].allows('v5.0', llama))
    self.assertTrue(by_flag['round'].allows('v5.1', llama))

  def test_all_scenarios_are_one_word(self):
    scenarios = ','.join(rounds.SCENARIOS)
    self.assertIn('--scenario=all', _words(scenario=scenarios))
    self.assertIn(
      '--scenario=Offline,Server', _words(scenario='Offline,Server')
    )

  def test_words_are_quoted_for_a_shell(self):
    self.assertIn("--results_dir=a b'$x", _words(results_dir="a b'$x"))

  def test_flags_of_other_systems_are_left_out(self):
    self.assertNotIn('--device=cuda', _words(device='cuda'))
    self.assertIn('--device=cuda', _words(device='cuda', system='reference'))

  def test_a_switch_has_no_value(self):
    self.assertIn('--rerun', _words(rerun='1'))
    self.assertNotIn('--rerun', _words(rerun=''))


if __name__ == '__main__':
  absltest.main()
