"""Tests that paxml and this server read each other's checkpoints."""

import functools
import pathlib
import subprocess
import sys

from absl.testing import absltest
from absl.testing import parameterized
from flax import traverse_util
import jax
import jax.numpy as jnp
import numpy as np

from saxml_ext.common import errors as common_errors
from saxml_ext.engine import config as config_lib
from saxml_ext.engine.testing import random_model
from saxml_ext.params import gptj
from saxml_ext.params.experiments import experiment
from saxml_ext.pax import errors
from saxml_ext.pax import restore
from saxml_ext.pax import store
from saxml_ext.pax.testing import checkpoints as pax_checkpoints

# praxis can be imported only after the modules above have prepared it.
# isort: split
from paxml import checkpoint_types
from paxml import checkpoints
from praxis import base_layer

_CONFIG = config_lib.ModelConfig(
  num_layers=2,
  model_dim=16,
  num_heads=2,
  head_dim=8,
  hidden_dim=32,
  rotary_dim=4,
  vocab_size=11,
)
_STEP = 7
_GDA = checkpoint_types.CheckpointType.GDA


class _Params(gptj.TinyTokenizedFP32):
  NUM_LAYERS = _CONFIG.num_layers
  MODEL_DIMS = _CONFIG.model_dim
  NUM_HEADS = _CONFIG.num_heads
  DIMS_PER_HEAD = _CONFIG.head_dim
  HIDDEN_DIMS = _CONFIG.hidden_dim
  ROTARY_DIM = _CONFIG.rotary_dim
  VOCAB_SIZE = _CONFIG.vocab_size
  EOS_ID = 3


@functools.cache
def _variables() -> dict[str, np.ndarray]:
  return random_model.variables(_CONFIG)


def _save(path: pathlib.Path, ocdbt: bool) -> None:
  """Saves a checkpoint with paxml, including the optimizer's state."""
  task = base_layer.instantiate(experiment.of(_Params)().task())
  state = task.create_train_state(
    traverse_util.unflatten_dict(_variables(), sep='.'),
    task.model.abstract_init_with_metadata(restore.example(1, 8)),
  )
  manager = checkpoints.save_checkpoint(
    state.replace(step=jnp.uint32(_STEP)),
    path,
    checkpoint_type=_GDA,
    tensorstore_use_ocdbt=ocdbt,
  )
  manager.wait_until_finished()


def _flat(tree) -> dict[str, np.ndarray]:
  return {
    '.'.join(part.key for part in path): np.asarray(value)
    for path, value in jax.tree_util.tree_leaves_with_path(tree)
  }


class CompatPaxmlTest(parameterized.TestCase):
  def test_refuses_a_family_without_a_model_in_praxis(self):
    params = type('Params', (_Params,), {'ARCHITECTURE': 'gpt_neox'})
    with self.assertRaisesRegex(
      common_errors.Unimplemented, 'no praxis model .* gpt_neox'
    ):
      experiment.of(params)().task()

  def setUp(self):
    super().setUp()
    self.path = pathlib.Path(self.create_tempdir().full_path)

  def assertSame(self, actual, expected=None):
    expected = _variables() if expected is None else expected
    self.assertCountEqual(actual, expected)
    for name, value in expected.items():
      np.testing.assert_array_equal(actual[name], value, name)

  @parameterized.parameters(False, True)
  def test_paxml_saves_and_restores(self, ocdbt):
    _save(self.path, ocdbt)
    restored = restore.restore(experiment.of(_Params)(), str(self.path))
    self.assertSame(_flat(restored.variables))

  @parameterized.product(ocdbt=(False, True), markers=(False, True))
  def test_we_read_what_paxml_saves(self, ocdbt, markers):
    _save(self.path, ocdbt)
    if not markers:  # paxml's original dependencies write none.
      for marker in self.path.rglob('commit_success.txt'):
        marker.unlink()
    state = self.path / f'checkpoint_{_STEP:08d}' / 'state'
    self.assertEqual(store.is_ocdbt(str(state)), ocdbt)
    stored = store.list_names(str(state))
    self.assertTrue(any(name.startswith('opt_states') for name in stored))
    self.assertSame(pax_checkpoints.read_variables(str(self.path)))

  def test_paxml_restores_what_we_write(self):
    pax_checkpoints.write_checkpoint(
      str(self.path), _variables().items(), _STEP
    )
    restored = restore.restore(experiment.of(_Params)(), str(self.path))
    self.assertSame(_flat(restored.variables))

  def test_plain_files_are_those_of_ours(self):
    ours = self.path / 'ours'
    pax_checkpoints.write_checkpoint(str(ours), _variables().items(), _STEP)
    _save(self.path / 'paxml', ocdbt=False)
    for zarray in ours.rglob('.zarray'):
      if zarray.parent.name == 'step':
        continue  # paxml writes uint32 and reads both types.
      same = self.path / 'paxml' / zarray.relative_to(ours)
      self.assertEqual(zarray.read_text(), same.read_text())

  @parameterized.parameters('.zarray', '0')
  def test_lost_file(self, name):
    pax_checkpoints.write_checkpoint(str(self.path), _variables().items())
    variable = 'mdl_vars.params.lm.final_ln.bias'
    (self.path / 'checkpoint_00000000/state' / variable / name).unlink()
    with self.assertRaisesRegex(errors.CheckpointError, 'final_ln.bias'):
      restore.restore(experiment.of(_Params)(), str(self.path))

  def test_another_model(self):
    pax_checkpoints.write_checkpoint(str(self.path), _variables().items())

    class Wider(_Params):
      HIDDEN_DIMS = 64

    with self.assertRaisesRegex(
      errors.CheckpointError, 'checkpoint_00000000 is not a checkpoint of Wider'
    ):
      restore.restore(experiment.of(Wider)(), str(self.path))

  def test_tensorflow_is_not_imported(self):
    code = (
      'from saxml_ext.pax import compat as c;'
      'c.install_paxml(); c.install_paxml();'
      'from paxml import base_experiment; import sys;'
      'print("tensorflow" in sys.modules)'
    )
    process = subprocess.run(
      [sys.executable, '-c', code],
      env={'PYTHONPATH': ':'.join(sys.path), 'JAX_PLATFORMS': 'cpu'},
      capture_output=True,
      text=True,
      check=True,
    )
    self.assertEqual(process.stdout.strip(), 'False')


if __name__ == '__main__':
  absltest.main()
