import json
import os
from unittest import mock

from absl import flags
from absl.testing import absltest
from absl.testing import flagsaver
import numpy as np

from harness import main
from harness.benchmarks import gptj
from harness.rules import rounds
from harness.scenarios import program
from saxml_ext.common import program as command_line


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
    argv = command_line.underscored(['main', *words])
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
      ('warm_up', '1,2,4,8,16,32,36'),
      ('warm_up_rest_secs', 30.0),
    ):
      self.assertEqual(self.values[name], value, name)
    self.assertEqual(self.argv, ['main'])

  def test_without_accuracy_it_is_a_performance_run(self):
    self._main('--no-accuracy')
    self.assertEqual(self.values['mode'], ['performance'])

  def test_a_published_command_runs_performance_alone(self):
    self._main('--log-path=/logs')
    self.assertEqual(self.values['mode'], ['performance'])
    self._main('--log-path=/logs', '--mode=accuracy,performance')
    self.assertEqual(self.values['mode'], ['accuracy', 'performance'])
    self._main('--log-path=/logs', '--warm-up=')
    self.assertEqual(self.values['warm_up'], '')

  def test_published_names_of_logs(self):
    directory = self.create_tempdir().full_path
    os.makedirs(os.path.join(directory, 'accuracy'))
    with open(os.path.join(directory, 'accuracy', 'log.txt'), 'w') as file:
      file.write('x')
    self._main(
      f'--log-path={directory}', '--accuracy', '--nostore-sax-accuracy'
    )
    self.assertTrue(
      os.path.isfile(os.path.join(directory, 'Offline_accuracy', 'log.txt'))
    )
    self._main(f'--log-path={directory}', '--accuracy', '--noextra_log_dir')
    self.assertTrue(os.path.isfile(os.path.join(directory, 'log.txt')))

  def test_published_names_need_a_place(self):
    for word in ('--nostore_sax_accuracy', '--noextra_log_dir'):
      with self.assertRaisesRegex(SystemExit, 'no effect without --log_path'):
        self._main(word)

  def test_flags_of_cm(self):
    for words, system in (
      (['--implementation=reference'], 'reference'),
      (['--implementation=reference', '--backend=pytorch'], 'reference'),
      (['--backend=saxml'], 'cell'),
      (['--model=bert-99', '--backend=pytorch'], 'pytorch'),
      (['--model=bert-99', '--implementation=reference'], 'onnxruntime'),
    ):
      with flagsaver.flagsaver():
        self._main(*words, '--category=edge', '--division=open')
        self.assertEqual(self.values['system'], system, words)
    for words, message in (
      (['--backend=onnxruntime'], '--backend=onnxruntime does not run gptj-99'),
      (
        ['--backend=pytorch', '--system=cell'],
        '--backend=pytorch contradicts --system',
      ),
      (
        ['--accuracy', '--mode=performance'],
        '--accuracy=True contradicts --mode',
      ),
    ):
      with flagsaver.flagsaver():
        with self.assertRaisesRegex(SystemExit, message):
          self._main(*words)

  def test_scenarios_of_a_category(self):
    with flagsaver.flagsaver():
      self._main('--scenario=all', '--category=datacenter')
      self.assertEqual(self.scenarios, ['Server', 'Offline'])
    with flagsaver.flagsaver():
      with self.assertRaisesRegex(SystemExit, 'v5.1 has no scenario of gptj'):
        self._main('--scenario=all', '--category=edge', '--round=v5.1')

  def test_every_flag_is_in_the_table(self):
    defined = {
      flag.name for flag in flags.FLAGS.flags_by_module_dict()[main.__name__]
    }
    # These flags set other flags of the table, or act in this program only.
    self.assertCountEqual(
      defined - {'scenario'},
      [
        'accuracy',
        'log_interval',
        'quiet',
        'short_name',
        'save_result',
        'submission',
        'mlperf_conf_path',
        'store_sax_accuracy',
        'extra_log_dir',
        'implementation',
        'backend',
        *main._ALIASES,
      ],
    )

  def test_both_runs_by_itself(self):
    self._main()
    self.assertEqual(self.values['mode'], ['accuracy', 'performance'])
    self.assertEqual(self.scenarios, ['Offline'])

  def test_scenarios(self):
    self._main('--scenario=all')
    self.assertEqual(self.scenarios, list(gptj.GPTJ.scenarios))
    self._main('--scenario=all', '--model=llama3.1-8b')
    self.assertEqual(self.scenarios, ['Offline', 'Server', 'Interactive'])
    self._main('--scenario=single_stream,server,MultiStream')
    self.assertEqual(self.scenarios, ['SingleStream', 'Server', 'MultiStream'])
    with self.assertRaisesRegex(
      SystemExit, '--scenario=Fast is unknown. Choose'
    ):
      self._main('--scenario=Fast')

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
    with self.assertRaisesRegex(
      SystemExit, '--short_name=first names a subdir'
    ):
      self._main('--short_name=first')


class PublishedLogsTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self._dir = self.create_tempdir().full_path

  def _job(self, directory: str) -> None:
    """Writes the logs of an accuracy run and of a performance run."""
    data = np.array([7, 50256], np.int64).tobytes().hex()
    for run, text in (
      ('accuracy', json.dumps([{'seq_id': 0, 'qsl_idx': 3, 'data': data}])),
      ('performance/run_1', '[]'),
    ):
      path = os.path.join(directory, run)
      os.makedirs(path)
      for name in ('mlperf_log_accuracy.json', 'mlperf_log_detail.txt'):
        with open(os.path.join(path, name), 'w', encoding='utf-8') as file:
          file.write(text)

  def _files(self) -> list[str]:
    return sorted(
      os.path.relpath(os.path.join(folder, name), self._dir)
      for folder, _, names in os.walk(self._dir)
      for name in names
      if not os.path.relpath(folder, self._dir).startswith(('acc', 'perf'))
    )

  def test_one_scenario(self):
    self._job(self._dir)
    main.write_published_logs(
      self._dir, ['Offline'], extra_dir=True, answers=True
    )
    self.assertEqual(
      self._files(),
      [
        'Offline_accuracy/mlperf_log_accuracy.json',
        'Offline_accuracy/mlperf_log_detail.txt',
        'Offline_performance/mlperf_log_accuracy.json',
        'Offline_performance/mlperf_log_detail.txt',
        'sax_accuracy.json',
      ],
    )
    with open(os.path.join(self._dir, 'sax_accuracy.json')) as file:
      self.assertEqual(json.load(file), [{'qsl_idx': 3, 'data': '7,50256'}])

  def test_without_a_directory_and_answers(self):
    self._job(self._dir)
    main.write_published_logs(
      self._dir, ['Server'], extra_dir=False, answers=False
    )
    self.assertEqual(
      self._files(), ['mlperf_log_accuracy.json', 'mlperf_log_detail.txt']
    )

  def test_several_scenarios_of_which_one_did_not_run(self):
    self._job(os.path.join(self._dir, 'Server'))
    main.write_published_logs(
      self._dir, ['Offline', 'Server'], extra_dir=True, answers=True
    )
    self.assertTrue(os.path.isdir(os.path.join(self._dir, 'Server_accuracy')))
    self.assertFalse(
      os.path.exists(os.path.join(self._dir, 'Offline_accuracy'))
    )


if __name__ == '__main__':
  absltest.main()
