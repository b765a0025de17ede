import os
from unittest import mock

from absl import flags
from absl.testing import absltest
from absl.testing import flagsaver

from harness import dashes
from harness import main
from harness.loadgen import rounds
from harness.scenarios import program


class MainTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self.enter_context(flagsaver.flagsaver())
    self.enter_context(mock.patch.object(program, 'run', self._run))

  def _run(self, name, scenarios, argv, progress, then) -> int:
    self.assertEqual(name, 'main')
    self.scenarios = scenarios
    self.interval = progress.interval_secs
    self.values = flags.FLAGS.flag_values_dict()
    self.argv = argv
    self.then = then
    return 7

  def _main(self, *words: str) -> None:
    argv = dashes.underscored(['main', *words])
    self.assertEqual(main.main(flags.FLAGS(argv)), 7)

  def test_published_command(self):
    self._main(
      '--scenario=Offline',
      '--model-path=/sax/test/gptj',
      '--dataset-path=cnn_eval.json',
      '--tokenizer-path=t.json',
      '--accuracy',
      '--log-path=/logs',
      '--short-name=first',
      '--max-examples=100',
      '--perf-examples=50',
      '--log-interval=1000',
      '--num-client-threads=200',
    )
    self.assertEqual(self.scenarios, ['Offline'])
    self.assertEqual(self.interval, 1000)
    for name, value in (
      ('model_path', '/sax/test/gptj'),
      ('dataset_path', 'cnn_eval.json'),
      ('tokenizer_path', 't.json'),
      ('mode', ['accuracy']),
      ('results_dir', '/logs/first'),
      ('sample_count', 100),
      ('buffer_count', 50),
      ('concurrency', 200),
    ):
      self.assertEqual(self.values[name], value, name)
    self.assertEqual(self.argv, ['main'])

  def test_without_accuracy_it_is_a_performance_run(self):
    self._main('--no-accuracy')
    self.assertEqual(self.values['mode'], ['performance'])

  def test_both_runs_by_itself(self):
    self._main()
    self.assertEqual(self.values['mode'], ['accuracy', 'performance'])
    self.assertEqual(self.scenarios, ['Offline'])

  def test_scenarios(self):
    self._main('--scenario=all')
    self.assertEqual(self.scenarios, list(rounds.SCENARIOS))
    self._main('--scenario=single_stream,server,MultiStream')
    self.assertEqual(self.scenarios, ['SingleStream', 'Server', 'MultiStream'])
    with self.assertRaisesRegex(SystemExit, '--scenario=Interactive: choose'):
      self._main('--scenario=Interactive')

  def test_a_result_that_is_not_kept(self):
    self._main('--nosave_result')
    self.assertStartsWith(
      os.path.basename(self.values['results_dir']), 'result_'
    )
    self.assertFalse(os.path.exists(self.values['results_dir']))

  def test_round_of_a_conf_file(self):
    seed = rounds.ROUNDS['v4.0'].qsl_seed
    path = self.create_tempfile(content=f'*.*.qsl_rng_seed = {seed}\n')
    self._main(f'--mlperf-conf-path={path.full_path}')
    self.assertEqual(self.values['round'], 'v4.0')

  def test_short_name_needs_a_place(self):
    with self.assertRaisesRegex(SystemExit, '--short_name=first names a dir'):
      self._main('--short_name=first')


if __name__ == '__main__':
  absltest.main()
