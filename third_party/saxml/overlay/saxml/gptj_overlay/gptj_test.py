"""Tests of gptj and servables, with a stand-in for upstream Saxml."""

from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
from jax import numpy as jnp
from saxml.gptj_overlay import gptj
from saxml.gptj_overlay import servables
from saxml.server import servable_model_registry
from saxml.server.pax.lm.params import gptj as upstream
from saxml.server.pax.lm.params import template
import saxml_release

from saxml_ext.families import gptj_published
from saxml_ext.params import published
from saxml_ext.params import registry
from saxml_ext.params.testing import upstream_facts

_FACTS = upstream_facts.load(saxml_release.NAME)
_STOCK = [f'{gptj.PACKAGE}gptj.{name}' for name in _FACTS.classes]
_PUBLISHED = [n for n in registry.names() if n.startswith(gptj.PACKAGE)]
_OURS = sorted(set(_PUBLISHED) - set(_STOCK))
# This int8 class is from v3.1. No release of Saxml has it.
_INT8 = gptj.PACKAGE + 'GPTJ4BS32Int8Opt10Early'


def _values(cls: type) -> dict[str, object]:
  return {name: getattr(cls, name) for name in dir(cls) if name.isupper()}


class StandInTest(parameterized.TestCase):
  @parameterized.parameters(*_FACTS.classes)
  def test_has_every_attribute(self, name):
    expected = {
      attribute: getattr(jnp, value) if attribute.endswith('_DTYPE') else value
      for attribute, value in _FACTS.classes[name].attributes.items()
    }
    self.assertEqual(_values(getattr(upstream, name)), expected)

  @parameterized.parameters(*_FACTS.classes)
  def test_quantizes_the_same_layers_as_upstream(self, name):
    quantized = getattr(upstream, name)().task().quantization is not None
    self.assertEqual(quantized, _FACTS.classes[name].quantized)


class GPTJTest(parameterized.TestCase):
  @parameterized.parameters(*_STOCK)
  def test_stock_class_is_kept(self, name):
    served = servable_model_registry.get(name)
    self.assertIs(served, getattr(upstream, name.rpartition('.')[2]))

  def test_everything_published_is_registered(self):
    self.assertCountEqual(servable_model_registry.get_all(), _PUBLISHED)
    self.assertNotEmpty(_OURS)

  @parameterized.parameters(*_OURS)
  def test_ours_is_registered_as_published(self, name):
    cls = servable_model_registry.get(name)
    params = registry.lookup(name)
    self.assertEqual(cls.__name__, name.rpartition('.')[2])
    self.assertEqual(cls.__doc__, params.__doc__)
    # The new class gets make_servable from upstream's class.
    self.assertTrue(issubclass(cls, upstream.GPTJ))
    self.assertTrue(issubclass(cls, template.ServingTemplate))

  @parameterized.parameters(*_OURS)
  def test_ours_has_the_attributes_of_its_params(self, name):
    cls, params = servable_model_registry.get(name), registry.lookup(name)
    expected = {
      'USE_BATCH_SHARDING': params.USE_BATCH_SHARDING,
      'XLA_TPU_FLAGS': params.XLA_TPU_FLAGS,
      **_values(upstream.GPTJ),
      **servables.attributes(params),
      'MODEL_DTYPE': jnp.bfloat16,
      'FPROP_DTYPE': jnp.bfloat16,
    }
    expected.pop('QUANTIZATION', None)
    self.assertEqual(_values(cls), expected)
    self.assertEqual(cls.serving_mesh_shape(), [1, 1, 1, 1, 4])

  @parameterized.parameters(*_OURS)
  def test_ours_builds_the_task_of_its_params(self, name):
    task = servable_model_registry.get(name)().task()
    params = registry.lookup(name)
    self.assertEqual(task.sizes, (28, 4096, 16384, 16, 256, params.VOCAB_SIZE))
    self.assertEqual(task.mesh_shape, (1, 1, 4))
    self.assertTrue(task.transposed)
    self.assertEqual(task.batch_sharding, params.USE_BATCH_SHARDING)
    if params.QUANTIZATION == 'none':
      self.assertIsNone(task.quantization)
    else:
      self.assertFalse(task.quantization['quantize_on_the_fly'])
      self.assertEqual(task.quantization['num_bits'], 8)
      self.assertFalse(task.quantization['quantize_embedding_softmax'])

  def test_an_override_of_batch_sharding_takes_effect(self):
    cls = servables.from_params('x.GPTJ', published.GPTJ)
    self.assertTrue(cls().task().batch_sharding)
    # Upstream changes a class in this way for an override of a publish.
    with mock.patch.object(cls, 'USE_BATCH_SHARDING', False):
      self.assertFalse(cls().task().batch_sharding)

  @parameterized.parameters(*_OURS)
  def test_ours_is_compiled_with_the_base_flags(self, name):
    cls = servable_model_registry.get(name)
    options = cls().compiler_options()
    self.assertEqual(options, {**gptj_published.XLA_FLAGS, **cls.XLA_TPU_FLAGS})

  def test_an_override_of_flags_keeps_the_base_flags(self):
    cls = servable_model_registry.get(_INT8)
    self.assertEqual(cls.XLA_TPU_FLAGS, gptj_published.XLA_FLAGS_BATCH_32)
    with mock.patch.object(cls, 'XLA_TPU_FLAGS', {'xla_tpu_autofdo': 'true'}):
      self.assertEqual(
        cls().compiler_options(),
        {**gptj_published.XLA_FLAGS, 'xla_tpu_autofdo': 'true'},
      )

  def test_flags_are_strings(self):
    for flag, value in (
      gptj_published.XLA_FLAGS | gptj_published.XLA_FLAGS_BATCH_32
    ).items():
      self.assertRegex(flag, '^xla_[a-z0-9_]+$')
      self.assertIsInstance(value, str)


class ServablesTest(parameterized.TestCase):
  def test_attribute_missing_in_upstream_is_refused(self):
    class Chunked(published.GPTJ):
      PREFILL_CHUNK_LEN = 128

    with self.assertRaisesRegex(AttributeError, 'sets PREFILL_CHUNK_LEN,'):
      servables.from_params('x.Chunked', Chunked)

  @parameterized.parameters(
    sorted(
      set(servables.attributes(published.GPTJ4TokenizedBF16BS32))
      - {'USE_BATCH_SHARDING'}
    )
  )
  def test_every_attribute_must_exist_in_upstream(self, attribute):
    values = _values(upstream.GPTJ)
    del values[attribute]
    lacking = type('Lacking', (), values)
    with mock.patch.object(upstream, 'GPTJ', lacking):
      with self.assertRaisesRegex(AttributeError, f'sets {attribute}, '):
        servables.from_params('x.Y', published.GPTJ4TokenizedBF16BS32)

  def test_upstream_without_compiler_options_is_refused(self):
    lacking = type('Lacking', (), _values(upstream.GPTJ))
    with mock.patch.object(upstream, 'GPTJ', lacking):
      with self.assertRaisesRegex(AttributeError, 'no compiler_options'):
        servables.from_params('x.GPTJ', published.GPTJ)

  def test_upstream_with_other_names_is_refused(self):
    with mock.patch.object(
      servable_model_registry,
      'full_registration_name',
      lambda cls: f'{cls.__module__}.{cls.__name__}',
    ):
      with self.assertRaisesRegex(ValueError, 'would register x.GPTJ as saxml'):
        servables.from_params('x.GPTJ', published.GPTJ)

  def test_int8_weights_select_int8_of_upstream(self):
    class Weights(published.GPTJ):
      QUANTIZATION = 'int8_weights'

    task = servables.from_params('x.Weights', Weights)().task()
    self.assertEqual(task.quantization['num_bits'], 8)

  def test_quantization_missing_in_upstream_is_refused(self):
    class Four(published.GPTJ):
      QUANTIZATION = 'int4'

    with self.assertRaisesRegex(ValueError, "QUANTIZATION = 'int4'"):
      servables.from_params('x.Four', Four)


if __name__ == '__main__':
  absltest.main()
