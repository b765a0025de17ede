"""Tests of the memory check."""

import tempfile
from unittest import mock

from absl.testing import absltest

from saxml_ext.common import errors
from saxml_ext.server import platforms
from saxml_ext.server.lifecycle import entry as entry_lib
from saxml_ext.server.loading import loader
from saxml_ext.server.loading import memory_check
from saxml_ext.server.testing import small_model

# The real model with random weights.
_RANDOM = 'saxml_ext.params.gptj.GPTJTokenizedINT8Test'


class FitTest(absltest.TestCase):
  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    directory = cls.enterClassContext(tempfile.TemporaryDirectory())
    cls.path = small_model.write(directory + '/checkpoint')

  def _spec(self, checkpoint: str = '', **overrides: str) -> entry_lib.Spec:
    return entry_lib.Spec(
      small_model.MODEL_PATH, checkpoint or self.path, overrides, acls={}
    )

  def _plan(self, **overrides: str) -> loader.Plan:
    return loader.plan(self._spec(**overrides))

  def test_weights_and_slots_are_counted(self):
    shape = small_model.SHAPE
    layer = 4 * shape.model_dim**2 + 2 * shape.model_dim * shape.hidden_dim
    matrices = 4 * shape.num_layers * layer  # A float32 has 4 bytes.
    small = memory_check.least(self._plan())
    self.assertBetween(small, matrices, 4 * matrices)
    more = memory_check.least(self._plan(BATCH_SIZE='4'))
    most = memory_check.least(self._plan(BATCH_SIZE='6'))
    self.assertGreater(more, small)
    # All slots need the same memory.
    self.assertAlmostEqual((most - small) / (more - small), 2.0, delta=0.1)

  def test_memory_beside_other_models_has_a_margin(self):
    least = memory_check.least(self._plan())
    for free, expected in ((least, False), (2 * least, True)):
      with mock.patch.object(platforms, 'free_bytes', lambda f=free: f):
        self.assertEqual(
          memory_check.Loads(self.fail).beside(self._spec()), expected
        )

  def test_unloadable_model_is_reported_before_the_load(self):
    with self.assertRaisesRegex(errors.InvalidArgument, 'not a directory'):
      memory_check.Loads(self.fail).beside(self._spec('/no/such/dir'))

  def test_load_is_planned_once(self):
    loads = memory_check.Loads(loader.load)
    with mock.patch.object(loader, 'plan', wraps=loader.plan) as plan:
      for has_room_is_asked in (True, False):
        plan.reset_mock()
        if has_room_is_asked:
          self.assertTrue(loads.beside(self._spec()))
        loads.load(self._spec(), self.fail).close(drain=False)
        plan.assert_called_once_with(self._spec())

  def test_other_model_is_planned_separately(self):
    loaded = []
    loads = memory_check.Loads(lambda plan, _: loaded.append(plan.spec))
    self.assertTrue(loads.beside(self._spec(BATCH_SIZE='4')))
    with self.assertLogs(level='INFO') as logs:
      loads.load(self._spec(), self.fail)
    self.assertEqual(loaded, [self._spec()])
    self.assertRegex(logs.output[-1], r'weights take .* and 2 slots .* MiB')

  def test_oversized_model_is_refused(self):
    loaded = []
    load = memory_check.Loads(lambda plan, _: loaded.append(plan)).load
    load(self._spec(), self.fail)
    self.assertLen(loaded, 1)
    with mock.patch.object(platforms, 'free_bytes', lambda: 1000):
      with self.assertRaisesRegex(
        errors.ResourceExhausted,
        'needs .* GiB are free. Publish with fewer slots .* unload another',
      ):
        load(self._spec(), self.fail)
    self.assertLen(loaded, 1)

  def test_oversized_beams_are_refused(self):
    load = memory_check.Loads(lambda *_: self.fail('it was loaded')).load
    wide = {'BATCH_SIZE': str(2**20), 'BEAM_SIZE': '24'}
    random = entry_lib.Spec(_RANDOM, 'None', wide, acls={})
    for spec, names_sizes in ((self._spec(**wide), False), (random, True)):
      with self.assertRaisesRegex(
        errors.InvalidArgument, r'needs [\d,.]+ GiB .* narrower beams'
      ) as raised:
        load(spec, self.fail)
      self.assertEqual('NUM_LAYERS' in raised.exception.message, names_sizes)


if __name__ == '__main__':
  absltest.main()
