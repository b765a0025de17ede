"""Tests the models that programs are compiled for without a checkpoint."""

from absl.testing import absltest
import jax
import jax.numpy as jnp

from saxml_ext.aot import abstract_model
from saxml_ext.common import errors
from saxml_ext.engine import weights as weights_lib
from saxml_ext.engine.numerics import quant
from saxml_ext.params import gptj  # noqa: F401 Registers or sets up.
from saxml_ext.params import lm_cloud  # noqa: F401 Registers or sets up.

_MODULE = 'saxml.server.pax.lm.params.gptj.'
_ONE_CHIP = {'ICI_MESH_SHAPE': '[1, 1, 1]'}


def _model(name: str, **overrides: str) -> abstract_model.AbstractModel:
  return abstract_model.from_params(
    _MODULE + name, {**_ONE_CHIP, **overrides}, jax.devices()
  )


def _layers(model: abstract_model.AbstractModel) -> weights_lib.Layer:
  layers = model.weights.layers
  assert isinstance(layers, weights_lib.Layer)
  return layers


class AbstractModelTest(absltest.TestCase):
  def test_int8_leaves_embedding_and_head_in_bfloat16(self):
    model = _model('GPTJ4TokenizedINT8BS32XLA')
    outside = model.weights
    self.assertEqual(outside.embedding.dtype, jnp.bfloat16)
    assert outside.head is not None
    assert not isinstance(outside.head, quant.QuantizedArray)
    self.assertEqual(outside.head.shape, (4096, 50401))
    self.assertEqual(outside.head.dtype, jnp.bfloat16)
    qkv = _layers(model).qkv
    assert isinstance(qkv, quant.QuantizedArray)
    self.assertEqual(qkv.values.shape, (28, 3 * 16 * 256, 4096))
    self.assertIsNone(qkv.activations)

  def test_weights_alone_can_be_int8(self):
    model = _model('GPTJ4TokenizedINT8BS32XLA', QUANTIZATION='"int8_weights"')
    up = _layers(model).up
    assert isinstance(up, quant.QuantizedArray)
    self.assertEqual(up.activations, 'bfloat16')

  def test_bfloat16_is_not_quantized(self):
    model = _model('GPTJ4TokenizedBF16BS32')
    down = _layers(model).down
    assert not isinstance(down, quant.QuantizedArray)
    self.assertEqual(down.dtype, jnp.bfloat16)

  def test_settings_match_stacked_weights(self):
    engine = _model('GPTJ4TokenizedINT8BS32XLA', NUM_CACHE_SLOTS='64')
    self.assertEqual(engine.settings.engine.num_slots, 64)
    self.assertEqual(engine.settings.engine.segments[-1], 1920)
    self.assertEqual(engine.settings.engine.eos_id, 50256)

  def test_params_without_all_sizes_are_refused(self):
    with self.assertRaisesRegex(errors.InvalidArgument, 'ROTARY_DIM'):
      abstract_model.from_params(
        'saxml_ext.params.gptj.TinyTokenizedFP32', {}, jax.devices()
      )
    with self.assertRaisesRegex(errors.InvalidArgument, 'NUM_LAYERS'):
      abstract_model.from_params(
        'saxml_ext.params.gptj.TinyTokenizedFP32',
        {'ROTARY_DIM': '8', 'EOS_ID': '2'},
        jax.devices(),
      )

  def test_family_without_head_has_the_published_size(self):
    abstract = abstract_model.from_params(
      'saxml.server.pax.lm.params.lm_cloud.LmCloudSpmd175BTest',
      _ONE_CHIP,
      jax.devices(),
    )
    model = abstract.settings.model
    self.assertEqual((model.num_layers, model.num_heads), (96, 96))
    self.assertEqual(model.architecture.attention_cap, 50.0)
    self.assertIsNone(abstract.weights.head)
    sizes = jax.tree.map(lambda x: x.size * x.dtype.itemsize, abstract.weights)
    total = sum(jax.tree.leaves(sizes))
    self.assertAlmostEqual(total / 1e9, 175, delta=1)

  def test_number_of_heads_follows_from_their_width(self):
    model = abstract_model.from_params(
      'saxml.server.pax.lm.params.lm_cloud.LmCloudSpmd2BTest', {}, jax.devices()
    )
    self.assertEqual(model.settings.model.num_heads, 24)

  def test_widths_are_split_among_the_parts(self):
    model = abstract_model.from_params(
      'saxml_ext.params.gptj.GPTJTokenizedBF16V5E2x4',
      {'ICI_MESH_SHAPE': '[1, 2, 1]', 'NUM_CACHE_SLOTS': '36'},
      jax.devices() * 2,
    )
    # A sixteenth of 36 slots rounds up to 3. Two parts cannot share 3 slots
    # equally, so the width is 4.
    self.assertEqual(model.settings.engine.widths, (4, 10, 36))

  def test_too_few_devices_are_refused(self):
    with self.assertRaisesRegex(errors.InvalidArgument, 'needs 4 devices'):
      _model('GPTJ4TokenizedBF16BS32', ICI_MESH_SHAPE='[1, 1, 4]')


if __name__ == '__main__':
  absltest.main()
