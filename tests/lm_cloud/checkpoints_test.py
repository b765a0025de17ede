"""Tests reading checkpoints of LmCloudSpmd models as a model server does."""

import tempfile

from absl.testing import absltest
from absl.testing import parameterized
import jax
import numpy as np

from saxml_ext.common import errors
from saxml_ext.engine import sharding
from saxml_ext.engine import weights as weights_lib
from saxml_ext.engine.parallel import split_weights
from saxml_ext.engine.testing import random_model
from saxml_ext.params import lm_cloud
from saxml_ext.params import settings as settings_lib
from saxml_ext.pax.testing import checkpoints
from saxml_ext.server.loading import stored_model

jax.config.update('jax_num_cpu_devices', 4)

_MODEL = random_model.lm_cloud(
  num_layers=3,
  model_dim=64,
  num_heads=4,
  head_dim=16,
  hidden_dim=128,
  vocab_size=300,
)


class _Params(lm_cloud.LmCloudSpmd175B):
  """The serving params of the stored model above."""

  NUM_LAYERS = _MODEL.num_layers
  MODEL_DIMS = _MODEL.model_dim
  NUM_HEADS = _MODEL.num_heads
  DIMS_PER_HEAD = _MODEL.head_dim
  HIDDEN_DIMS = _MODEL.hidden_dim
  VOCAB_SIZE = _MODEL.vocab_size
  MODEL_DTYPE = 'float32'
  FPROP_DTYPE = 'float32'


def _settings(**attributes) -> settings_lib.Settings:
  return settings_lib.Settings.from_params(
    type('Params', (_Params,), attributes)
  )


def _write(variables) -> str:
  path = tempfile.mkdtemp(dir=absltest.TEST_TMPDIR.value)
  checkpoints.write_checkpoint(path, variables.items())
  return path


class CheckpointsTest(parameterized.TestCase):
  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.variables = random_model.variables(_MODEL)
    cls.own = _write(cls.variables)
    cls.shared = _write(random_model.repeated(cls.variables, _MODEL))

  def test_sizes_and_family_are_those_of_the_params(self):
    for path in self.own, self.shared:
      stored = stored_model.StoredModel(path)
      self.assertEqual(stored.config(_settings()), _MODEL)

  @parameterized.parameters('none', 'int8_weights')
  def test_layers_may_share_their_variables(self, quantization):
    settings = _settings(QUANTIZATION=quantization)
    form = split_weights.Form('float32', settings.quantization, False)
    expected = weights_lib.from_pax(
      self.variables, _MODEL, 'float32', settings.quantization, False
    )
    mesh = sharding.make_mesh((1, 1, 4))
    padded = sharding.pad(mesh, expected)
    for path in self.own, self.shared:
      stored = stored_model.StoredModel(path)
      whole = stored.weights(_MODEL, settings, None)
      jax.tree.map(np.testing.assert_array_equal, whole, expected)
      parts = stored.split(_MODEL, form, mesh)
      jax.tree.map(np.testing.assert_array_equal, parts, padded)

  @parameterized.parameters(
    (dict(NUM_LAYERS=96), 'num_layers=3, but .* require 96'),
    (dict(ARCHITECTURE='gptj', ROTARY_DIM=8), 'embedding_lookup.emb_var'),
  )
  def test_refuses_params_of_another_model(self, attributes, message):
    for path in self.own, self.shared:
      stored = stored_model.StoredModel(path)
      with self.assertRaisesRegex(errors.InvalidArgument, message):
        stored.config(_settings(**attributes))

  def test_missing_and_misshapen_variables_are_named(self):
    for change, message in (
      ({'ff_layer.layer_norm.scale': None}, r"'transformer.*layer_norm.scale'"),
      ({'ffn_layer1.bias.b': np.zeros([3, 5], np.float32)}, r'\[3, 128\]'),
    ):
      variables = random_model.repeated(self.variables, _MODEL)
      [(ending, value)] = change.items()
      [name] = [name for name in variables if name.endswith(ending)]
      del variables[name]
      if value is not None:
        variables[name] = value
      stored = stored_model.StoredModel(_write(variables))
      with self.assertRaisesRegex(errors.InvalidArgument, message):
        stored.config(_settings())


if __name__ == '__main__':
  absltest.main()
