import json
import tempfile

from absl.testing import absltest
import jax

from saxml_ext.pax.testing import checkpoints
from saxml_ext.server.lifecycle import entry as entry_lib
from saxml_ext.server.loading import loader
from saxml_ext.server.testing import small_model

jax.config.update('jax_num_cpu_devices', 2)

_OVERRIDES = {'BATCH_SIZE': 2, 'MAX_DECODE_STEPS': 4}


class PreparedTest(absltest.TestCase):
  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.directory = small_model.write(
      tempfile.mkdtemp(dir=absltest.TEST_TMPDIR.value)
    )
    cache = tempfile.mkdtemp(dir=absltest.TEST_TMPDIR.value)
    jax.config.update('jax_compilation_cache_dir', cache)
    jax.config.update('jax_persistent_cache_min_compile_time_secs', 0.0)
    jax.config.update('jax_persistent_cache_min_entry_size_bytes', -1)

  def _identity(self, directory=None, **overrides):
    values = {**_OVERRIDES, **overrides}
    ready = loader.prepare(
      entry_lib.Spec(
        small_model.MODEL_PATH,
        directory or self.directory,
        {name: json.dumps(value) for name, value in values.items()},
        acls={},
      )
    )
    return dict(ready.identity)

  def _differ(self, one, other) -> set[str]:
    self.assertEqual(one.keys(), other.keys())
    return {name for name, value in one.items() if other[name] != value}

  def test_differences_are_named(self):
    first = self._identity()
    self.assertEqual(self._differ(first, self._identity()), set())
    self.assertIn(jax.__version__, first['version'])
    self.assertEqual(
      self._differ(first, self._identity(MAX_LIVE_BATCHES=3)), {'params'}
    )
    self.assertEqual(
      # The programs for streams depend on the maximum number of steps.
      self._differ(first, self._identity(MAX_DECODE_STEPS=3)),
      {'params', 'programs', 'sizes'},
    )
    split = self._identity(ICI_MESH_SHAPE=[1, 1, 2])
    self.assertEqual(self._differ(first, split), {'params', 'mesh'})
    self.assertIn('[1, 1, 2] of 2 cpu on 1 hosts', split['mesh'])

  def test_checkpoints_are_identified_by_their_values(self):
    """Checks checkpoints with equal shapes that differ in one value."""
    variables = checkpoints.read_variables(self.directory)
    copies = []
    for change in (None, 1e-6):
      if change is not None:
        variables['params.lm.final_ln.bias'][3] = change
      path = self.create_tempdir().full_path
      checkpoints.write_checkpoint(path, variables.items())
      settings = dict(EOS_ID=49, ROTARY_DIM=8)
      copies.append(self._identity(path, **settings))
    self.assertEqual(self._differ(*copies), {'checkpoint'})
    self.assertRegex(copies[0]['checkpoint'], r'checkpoint_00000000 \w{16}')
    self.assertEqual(copies[0]['checkpoint'], self._identity()['checkpoint'])


if __name__ == '__main__':
  absltest.main()
