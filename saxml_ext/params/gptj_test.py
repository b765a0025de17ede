"""Tests for gptj."""

import dataclasses

from absl.testing import absltest
from absl.testing import parameterized

from saxml_ext.params import gptj  # pylint: disable=unused-import
from saxml_ext.params import overrides
from saxml_ext.params import registry
from saxml_ext.params import settings as settings_lib

_UPSTREAM = 'saxml.server.pax.lm.params.gptj.'


def _settings(name: str, **given: str) -> settings_lib.Settings:
  params = overrides.apply(registry.lookup(name), given)
  return settings_lib.Settings.of(params)


class GPTJTest(parameterized.TestCase):

  @parameterized.parameters(
      ('GPTJ', 1, 2, 0.2, 'float32', (1919,)),
      ('GPTJ4BF16BS32', 32, 192, 4.0, 'bfloat16', (512, 1024, 1919)),
      ('GPTJ4TokenizedBF16BS32', 32, 192, 4.0, 'bfloat16', (512, 1024, 1919)),
  )
  def test_upstreams_classes(self, name, slots, limit, wait, dtype, buckets):
    settings = _settings(_UPSTREAM + name)
    self.assertEqual(settings.num_slots, slots)
    self.assertEqual(settings.admission_limit, limit)
    self.assertEqual(settings.admission_wait, wait)
    self.assertEqual(settings.dtype, dtype)
    self.assertEqual(settings.prompt_buckets, buckets)
    self.assertEqual(settings.max_prompt, 1919)
    self.assertEqual(
        (settings.min_new_tokens, settings.max_new_tokens), (30, 128)
    )
    self.assertEqual(settings.num_beams, 4)
    self.assertEqual(settings.eos_id, 50256)
    self.assertIsNone(settings.sos_id)
    self.assertEqual(settings.tokenized_input, 'Tokenized' in name)
    self.assertEqual(
        settings.shape,
        dict(
            num_layers=28,
            model_dim=4096,
            hidden_dim=16384,
            num_heads=16,
            head_dim=256,
            vocab_size=50401,
        ),
    )

  @parameterized.parameters('Offline', 'Server')
  def test_upstreams_int8_classes(self, scenario):
    settings = _settings(
        _UPSTREAM + 'GPTJ4TokenizedINT8BS32XLAWait40MB6' + scenario
    )
    self.assertEqual(settings.quantization, 'int8')
    self.assertEqual(settings.dtype, 'bfloat16')
    self.assertEqual(settings.num_slots, 32)
    self.assertEqual(settings.admission_limit, 192)
    self.assertEqual(settings.admission_wait, 4.0)
    self.assertTrue(settings.tokenized_input and settings.tokenized_output)

  def test_bundled_models_classes(self):
    tokenized = _settings('saxml_ext.params.gptj.TinyTokenizedFP32')
    text = _settings('saxml_ext.params.gptj.TinyFP32')
    int8 = _settings('saxml_ext.params.gptj.TinyTokenizedINT8')
    self.assertEqual(int8.quantization, 'int8')
    self.assertEqual(dataclasses.replace(int8, quantization=None), tokenized)
    for settings in (tokenized, text):
      self.assertIsNone(settings.quantization)
      self.assertEqual(settings.dtype, 'float32')
      self.assertEqual(settings.num_beams, 4)
      self.assertTrue(settings.early_stopping)
      self.assertEqual(settings.length_penalty, 1.0)
      self.assertEqual(
          (settings.min_new_tokens, settings.max_new_tokens), (30, 128)
      )
      self.assertEqual(settings.max_prompt, 512)
      self.assertEmpty(settings.shape)
      self.assertIsNone(settings.eos_id)
      # A whole set sent at once is held, not refused.
      self.assertGreaterEqual(settings.admission_limit, 512)
    self.assertFalse(tokenized.needs_tokenizer)
    self.assertTrue(text.needs_tokenizer)

  def test_publishing_with_overrides(self):
    settings = _settings(
        _UPSTREAM + 'GPTJ4TokenizedBF16BS32',
        BATCH_SIZE='16',
        BUCKET_KEYS='[1919]',
        ram='1000',
    )
    self.assertEqual(settings.num_slots, 16)
    self.assertEqual(settings.prompt_buckets, (1919,))


if __name__ == '__main__':
  absltest.main()
