"""Tests for gptj and servables, against a stand-in for upstream Saxml."""

from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
from jax import numpy as jnp
from saxml.gptj_overlay import gptj
from saxml.gptj_overlay import servables
from saxml.gptj_overlay import xla_flags
from saxml.server import servable_model_registry
from saxml.server.pax.lm.params import gptj as upstream
from saxml.server.pax.lm.params import template

from saxml_ext.params import gptj as published

_INT8 = (
    'GPTJ4INT8BS32',
    'GPTJ4TokenizedINT8BS32',
    'GPTJ4TokenizedINT8BS32XLA',
    'GPTJ4TokenizedINT8BS32XLAEarly',
    'GPTJ4TokenizedINT8BS32XLAWait40MB6',
    'GPTJ4TokenizedINT8BS32XLAWait40MB6Offline',
    'GPTJ4TokenizedINT8BS32XLAWait40MB6Server',
)
_SUBMITTED = _INT8[-1]
_UPSTREAMS_OWN = ('GPTJ', 'GPTJ4BF16BS32', 'GPTJ4TokenizedBF16BS32')


def _served(name: str) -> type:
  cls = servable_model_registry.get(gptj.PREFIX + name)
  assert cls is not None, name
  return cls


def _values(cls: type) -> dict[str, object]:
  return {each: getattr(cls, each) for each in dir(cls) if each.isupper()}


class GPTJTest(parameterized.TestCase):

  @parameterized.parameters(*_UPSTREAMS_OWN, *_INT8)
  def test_is_registered_as_published(self, name):
    cls = _served(name)
    self.assertEqual(cls.__name__, name)
    self.assertEqual(cls.__doc__, getattr(published, name).__doc__)
    # make_servable came with upstream's class.
    self.assertTrue(issubclass(cls, upstream.GPTJ))
    self.assertTrue(issubclass(cls, template.ServingTemplate))

  def test_nothing_else_is_registered(self):
    self.assertCountEqual(
        servable_model_registry.get_all(),
        [gptj.PREFIX + name for name in (*_UPSTREAMS_OWN, *_INT8)],
    )

  @parameterized.parameters(*_UPSTREAMS_OWN)
  def test_agrees_with_upstreams_own(self, name):
    ours, theirs = _served(name), getattr(upstream, name)
    self.assertIsNot(ours, theirs)
    self.assertEqual(_values(ours), _values(theirs))
    self.assertEqual(ours.serving_mesh_shape(), theirs.serving_mesh_shape())
    self.assertEqual(ours().task(), theirs().task())
    self.assertIsNone(ours().compiler_options())

  @parameterized.parameters(*_INT8)
  def test_int8_classes(self, name):
    cls = _served(name)
    expected = {
        **_values(upstream.GPTJ4BF16BS32),
        'TOKENIZED_INPUT': 'Tokenized' in name,
        'TOKENIZED_OUTPUT': 'Tokenized' in name,
        'BEAM_SEARCH_EARLY_EXIT': 'Early' in name or 'Wait' in name,
    }
    if 'XLA' in name:
      expected['XLA_TPU_FLAGS'] = xla_flags.BATCH_32
    self.assertEqual(_values(cls), expected)
    self.assertEqual((cls.BATCH_WAIT_SECS, cls.MAX_LIVE_BATCHES), (4.0, 6))
    self.assertEqual((cls.MODEL_DTYPE, cls.FPROP_DTYPE), (jnp.bfloat16,) * 2)
    self.assertEqual(cls.serving_mesh_shape(), [1, 1, 1, 1, 4])

  @parameterized.parameters(*_INT8)
  def test_int8_task_takes_a_quantized_checkpoint(self, name):
    task = _served(name)().task()
    self.assertEqual(task.sizes, (28, 4096, 16384, 16, 256, 50401))
    self.assertFalse(task.quantization['quantize_on_the_fly'])
    self.assertEqual(task.quantization['num_bits'], 8)
    self.assertFalse(task.quantization['quantize_embedding_softmax'])

  def test_flags_can_be_overridden(self):
    cls = _served(_SUBMITTED)
    self.assertEqual(cls().compiler_options(), xla_flags.BATCH_32)
    # What upstream does with an override of a publish.
    with mock.patch.object(cls, 'XLA_TPU_FLAGS', {'xla_tpu_autofdo': 'true'}):
      self.assertEqual(cls().compiler_options(), {'xla_tpu_autofdo': 'true'})

  def test_flags_are_strings(self):
    for flag, value in xla_flags.BATCH_32.items():
      self.assertRegex(flag, '^xla_[a-z0-9_]+$')
      self.assertIsInstance(value, str)


class ServablesTest(parameterized.TestCase):

  def test_attribute_that_upstream_lacks(self):
    class Chunked(published.GPTJ):
      PREFILL_CHUNK_LEN = 128

    with self.assertRaisesRegex(AttributeError, 'sets PREFILL_CHUNK_LEN,'):
      servables.of('x.Chunked', Chunked)

  @parameterized.parameters(
      sorted(servables.attributes(published.GPTJ4TokenizedBF16BS32))
  )
  def test_every_attribute_must_be_upstreams(self, attribute):
    values = _values(upstream.GPTJ)
    del values[attribute]
    lacking = type('Lacking', (), values)
    with mock.patch.object(upstream, 'GPTJ', lacking):
      with self.assertRaisesRegex(AttributeError, f'sets {attribute}, '):
        servables.of('x.Y', published.GPTJ4TokenizedBF16BS32)

  def test_upstream_without_compiler_options(self):
    with mock.patch.object(template.ServingTemplate, 'compiler_options'):
      del template.ServingTemplate.compiler_options
      with self.assertRaisesRegex(AttributeError, 'no compiler_options'):
        servables.of('x.' + _SUBMITTED, getattr(published, _SUBMITTED))

  def test_upstream_that_asks_no_name(self):
    with mock.patch.object(
        servable_model_registry,
        'full_registration_name',
        lambda cls: f'{cls.__module__}.{cls.__name__}',
    ):
      with self.assertRaisesRegex(ValueError, 'would register x.GPTJ as saxml'):
        servables.of('x.GPTJ', published.GPTJ)

  def test_quantization_that_upstream_lacks(self):
    class Weights(published.GPTJ):
      QUANTIZATION = 'int8_weights'

    with self.assertRaisesRegex(ValueError, "QUANTIZATION = 'int8_weights'"):
      servables.of('x.Weights', Weights)

  def test_warns_of_other_values_upstream(self):
    name = gptj.PREFIX + _SUBMITTED
    ours = servables.of(name, getattr(published, _SUBMITTED))
    with self.assertNoLogs('absl', 'WARNING'):
      servables.warn_of_changes(name, ours)
    with mock.patch.object(_served(_SUBMITTED), 'BATCH_SIZE', 36):
      with self.assertLogs('absl', 'WARNING') as logs:
        servables.warn_of_changes(name, ours)
    self.assertLen(logs.output, 1)
    self.assertIn('BATCH_SIZE is 32 here, 36 upstream', logs.output[0])

  def test_warns_of_nothing_where_upstream_has_no_such_class(self):
    with self.assertNoLogs('absl', 'WARNING'):
      servables.warn_of_changes('x.New', upstream.GPTJ)


if __name__ == '__main__':
  absltest.main()
