import os

from absl.testing import absltest
from absl.testing import flagsaver

from harness.data import bundle
from harness.loadgen import rounds
from harness.scenarios import config as config_lib
from harness.scenarios import load
from harness.scenarios.flags import job_flags
from harness.systems import launch


class JobFlagsTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self._cache = self.create_tempdir().full_path

  def _config(self, scenario=rounds.OFFLINE, **values) -> config_lib.JobConfig:
    values = {'cache_dir': self._cache, 'sample_count': 4} | values
    with flagsaver.flagsaver(**values):
      _, [config] = job_flags.jobs([scenario])
    return config

  def test_default_is_the_bundled_model_in_a_cell_of_its_own(self):
    config = self._config()
    self.assertIsInstance(config.system, launch.OwnCell)
    self.assertIsNone(config.system.checkpoint)
    self.assertEqual(
      config.system.jax_cache_dir, os.path.join(self._cache, 'jax')
    )
    self.assertEqual(config.modes, ('accuracy', 'performance'))
    self.assertEqual(config.load.round, 'v5.0')
    self.assertIsNone(config.load.execution_mode)
    # Compared with the bundled reference.
    self.assertEqual(config.task.inputs['reference'], bundle.reference_path())

  def test_another_checkpoint_has_no_reference(self):
    config = self._config(checkpoint='/ckpt')
    self.assertNotIn('reference', config.task.inputs)
    self.assertEqual(config.system.checkpoint, '/ckpt')
    self.assertNotIn('reference', self._config(reference_path='').task.inputs)

  def test_a_running_cell_is_a_target(self):
    config = self._config(model_path='/sax/test/m', sax_root='/root')
    self.assertEqual(
      config.system.parameters,
      {'model_id': '/sax/test/m', 'sax_root': '/root', 'stream': False},
    )
    self.assertNotIn('reference', config.task.inputs)
    # Its servers are not watched: a short silence is what tells.
    self.assertEqual(config.load.silence_secs, 25.0)
    self.assertEqual(self._config().load.silence_secs, 120.0)

  def test_a_cell_of_several_hosts(self):
    self.assertNotIn('hosts', self._config(hosts=1).system.parameters)
    system = self._config(hosts=2).system
    self.assertEqual(system.hosts, 2)
    self.assertEqual(system.parameters['hosts'], 2)
    # Its requests are split among the devices of all of them.
    self.assertEqual(set(system.overrides), {'ICI_MESH_SHAPE'})
    for values, message in (
      ({'system': 'engine'}, '--hosts=2 is for --system=cell.*engine is not'),
      ({'model_path': '/sax/test/m', 'sax_root': '/r'}, 'of a running one'),
    ):
      with self.assertRaisesRegex(ValueError, message):
        self._config(hosts=2, **values)

  def test_what_decides_the_result_makes_the_id(self):
    known = self._config().id
    self.assertEqual(self._config(silence_secs=3.0).id, known)
    self.assertEqual(self._config(jax_cache_dir='').id, known)
    for change in (
      {'target_qps': 5.0},
      {'sample_count': 5},
      {'override': ['BATCH_SIZE=2']},
      {'hosts': 2},
      {'mode': ['performance']},
      {'round': 'v4.0'},
      {'scenario': rounds.SERVER},
      {'model': 'gptj-99.9'},
      {'execution_mode': load.TEST},
    ):
      self.assertNotEqual(self._config(**change).id, known, change)

  def test_targets_are_of_the_system_and_its_samples(self):
    known = self._config(rounds.SERVER).targets_key
    for change in (
      {'target_qps': 5.0},
      {'min_duration': 5},
      {'round': 'v4.0'},
      {'mode': ['find_performance']},
    ):
      config = self._config(rounds.SERVER, **change)
      self.assertEqual(config.targets_key, known, change)
    for change in (
      {'target_latency_ms': 5.0},
      {'override': ['BATCH_SIZE=2']},
      {'concurrency': 3},
    ):
      config = self._config(rounds.SERVER, **change)
      self.assertNotEqual(config.targets_key, known, change)
    self.assertNotEqual(self._config().targets_key, known)

  def test_lines_of_user_conf(self):
    path = self.create_tempfile(content='*.Offline.target_qps = 3\n').full_path
    config = self._config(user_conf_override_path=path)
    self.assertEqual(config.load.user_conf_extra, '*.Offline.target_qps = 3\n')

  def test_wrong_values_are_told(self):
    for values, message in (
      ({'mode': ['speed']}, '--mode=speed: choose one or more of accuracy'),
      ({'target_qps': 0.0}, '--target_qps=0.0: must be above 0'),
      ({'override': ['BATCH_SIZE']}, '--override=BATCH_SIZE: write it as'),
      ({'dataset_path': '/nowhere'}, '/nowhere'),
    ):
      with self.assertRaisesRegex((OSError, ValueError), message):
        self._config(**values)


if __name__ == '__main__':
  absltest.main()
