"""Tests of GPT-J's serving params."""

import dataclasses
import math

from absl.testing import absltest

from saxml_ext.families import gptj as gptj_family
from saxml_ext.families import gptj_published
from saxml_ext.params import gptj  # noqa: F401 Registers or sets up.
from saxml_ext.params import overrides
from saxml_ext.params import registry
from saxml_ext.params import settings as settings_lib

_UPSTREAM = 'saxml.server.pax.lm.params.gptj.'


def _settings(name: str, **given: str) -> settings_lib.Settings:
  params = overrides.apply(registry.lookup(name), given)
  return settings_lib.Settings.from_params(params)


class GPTJTest(absltest.TestCase):
  def test_bundled_models_classes(self):
    tokenized = _settings('saxml_ext.params.gptj.TinyTokenizedFP32')
    text = _settings('saxml_ext.params.gptj.TinyFP32')
    int8 = _settings('saxml_ext.params.gptj.TinyTokenizedINT8')
    self.assertEqual(int8.quantization, 'int8')
    self.assertEqual(dataclasses.replace(int8, quantization=None), tokenized)
    for settings in (tokenized, text):
      self.assertIsNone(settings.quantization)
      self.assertEqual(settings.dtype, 'float32')
      self.assertEqual(settings.engine.num_beams, 4)
      self.assertTrue(settings.engine.early_stopping)
      self.assertEqual(settings.engine.length_penalty, 1.0)
      self.assertEqual(
        (settings.engine.min_new_tokens, settings.engine.max_new_tokens),
        (30, 128),
      )
      self.assertEqual(settings.engine.max_prompt, 512)
      self.assertEmpty(settings.shape)
      self.assertIsNone(settings.engine.eos_id)
      # A whole data set that is sent at once is queued, not refused.
      self.assertGreaterEqual(settings.admission_limit, 512)
    self.assertFalse(tokenized.needs_tokenizer)
    self.assertTrue(text.needs_tokenizer)

  def test_only_test_params_are_for_random_weights(self):
    name = 'saxml_ext.params.gptj.GPTJTokenizedINT8Test'
    settings = _settings(name)
    submitted = _settings(
      _UPSTREAM + 'GPTJ4TokenizedINT8BS32XLAWait40MB6Offline'
    )
    self.assertTrue(settings.test_mode)
    self.assertEqual(dataclasses.replace(settings, test_mode=False), submitted)
    named = [n for n in registry.names() if _settings(n).test_mode]
    self.assertEqual(named, [name])

  def test_publishing_with_overrides(self):
    settings = _settings(
      _UPSTREAM + 'GPTJ4TokenizedBF16BS32',
      BATCH_SIZE='16',
      BUCKET_KEYS='[1919]',
      ram='1000',
    )
    self.assertEqual(settings.engine.num_slots, 16)
    self.assertEqual(settings.engine.prompt_buckets, (1919,))

  def test_int8_on_four_chips(self):
    params = registry.lookup('saxml_ext.params.gptj.GPTJTokenizedINT8V5E2x2')
    settings = settings_lib.Settings.from_params(params)
    self.assertEqual(settings.quantization, 'int8')
    self.assertEqual(settings.dtype, 'bfloat16')
    self.assertEqual(settings.mesh_shape, (1, 1, 4))
    self.assertEqual(settings.engine.kv_dtype, 'int8')
    self.assertEqual(
      settings.engine.prompt_buckets, (512, 768, 1024, 1280, 1536, 1919)
    )
    self.assertEqual(settings.engine.max_new_tokens, 128)
    self.assertEqual(settings.shape['vocab_size'], 50401)
    self.assertEqual(params.XLA_TPU_FLAGS, gptj_published.XLA_FLAGS_BATCH_32)

  def test_bfloat16_has_int8_keys_and_values(self):
    params = registry.lookup('saxml_ext.params.gptj.GPTJTokenizedBF16V5E2x2')
    settings = settings_lib.Settings.from_params(params)
    self.assertIsNone(settings.quantization)
    self.assertEqual(settings.engine.kv_dtype, 'int8')

  def test_every_slice_can_be_set_up(self):
    for name, (mesh, int8, bf16) in gptj_family.SLICES.items():
      for numbers, slots in (('INT8', int8), ('BF16', bf16)):
        with self.subTest(f'{numbers} {name}'):
          params = registry.lookup(
            f'saxml_ext.params.gptj.GPTJTokenized{numbers}{name}'
          )
          settings = settings_lib.Settings.from_params(params)
          self.assertEqual(settings.engine.num_slots, slots)
          # The mesh splits GPT-J's 16 heads evenly.
          self.assertEqual(16 % mesh[2], 0)
          self.assertEqual(slots % math.prod(mesh[:2]), 0)


if __name__ == '__main__':
  absltest.main()
