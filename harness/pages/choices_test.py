"""Tests the choices and the commands that they compose."""

import shlex

from absl.testing import absltest

from harness.pages import choices
from harness.rules import rounds


def _words(**values):
  text = choices.command(choices.defaults() | values)
  return shlex.split(text.replace('\\\n', ''))


class ChoicesTest(absltest.TestCase):
  def test_page_opens_with_the_default_job(self):
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

  def test_every_default_is_one_of_its_options(self):
    for choice in choices.CHOICES:
      self.assertIn(choice.kind, ('one', 'many', 'text', 'number', 'switch'))
      self.assertEqual(bool(choice.options), choice.kind in ('one', 'many'))
      if choice.chosen:
        self.assertIn(choice.chosen, choice.options)
      self.assertContainsSubset(choice.benchmarks, choice.options)
    flags = [choice.flag for choice in choices.CHOICES]
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

  def test_defaults_are_allowed(self):
    for choice in choices.CHOICES:
      if choice.kind == 'one' and choice.chosen:
        self.assertTrue(choice.allows(choice.chosen, 'gptj-99'))

  def test_choices_without_support_are_not_allowed(self):
    by_flag = {choice.flag: choice for choice in choices.CHOICES}
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
