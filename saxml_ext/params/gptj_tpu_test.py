"""Tests of the serving params that TPU program sets are compiled for."""

import math

from absl.testing import absltest

from saxml_ext.params import gptj_tpu
from saxml_ext.params import registry
from saxml_ext.params import settings as settings_lib
from saxml_ext.params import template
from saxml_ext.params import xla_flags


class GPTJTPUTest(absltest.TestCase):
  def test_int8_on_four_chips(self):
    params: type[template.ServableLMParams] = registry.lookup(
      'saxml_ext.params.gptj.GPTJTokenizedINT8V5E2x2'
    )
    settings = settings_lib.Settings.of(params)
    self.assertEqual(settings.quantization, 'int8')
    self.assertEqual(settings.dtype, 'bfloat16')
    self.assertEqual(settings.mesh_shape, (1, 1, 4))
    self.assertEqual(settings.engine.kv_dtype, 'int8')
    self.assertEqual(
      settings.engine.prompt_buckets, (512, 768, 1024, 1280, 1536, 1919)
    )
    self.assertEqual(settings.engine.max_new_tokens, 128)
    self.assertEqual(settings.shape['vocab_size'], 50401)
    self.assertEqual(params.XLA_TPU_FLAGS, xla_flags.BATCH_32)

  def test_bfloat16_has_int8_keys_and_values(self):
    params = registry.lookup('saxml_ext.params.gptj.GPTJTokenizedBF16V5E2x2')
    settings = settings_lib.Settings.of(params)
    self.assertIsNone(settings.quantization)
    self.assertEqual(settings.engine.kv_dtype, 'int8')

  def test_every_slice_can_be_set_up(self):
    for name, (mesh, int8, bf16) in gptj_tpu.SLICES.items():
      for numbers, slots in (('INT8', int8), ('BF16', bf16)):
        with self.subTest(f'{numbers} {name}'):
          params = registry.lookup(
            f'saxml_ext.params.gptj.GPTJTokenized{numbers}{name}'
          )
          settings = settings_lib.Settings.of(params)
          self.assertEqual(settings.engine.num_slots, slots)
          # GPT-J's 16 heads are split evenly.
          self.assertEqual(16 % mesh[2], 0)
          self.assertEqual(slots % math.prod(mesh[:2]), 0)


if __name__ == '__main__':
  absltest.main()
