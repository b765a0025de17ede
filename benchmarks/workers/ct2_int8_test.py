"""Tests the streamed conversion against CTranslate2's own converter."""

import filecmp
import os

from absl.testing import absltest
from absl.testing import parameterized
import ctranslate2
import numpy as np

from benchmarks import random_model
from benchmarks.workers import ct2_int8
from saxml_ext.engine import architecture
from saxml_ext.families import hf_config


class CT2Int8Test(parameterized.TestCase):
  @parameterized.product(
    family=('gptj', 'llama'), dtype=('float32', 'bfloat16')
  )
  def test_files_and_logits_are_those_of_the_stock_converter(
    self, family, dtype
  ):
    root = self.create_tempdir().full_path
    sizes = hf_config.HFConfig(3, 64, 4, 256, 300, rotary_dim=8)
    if family == 'llama':
      sizes = hf_config.HFConfig(
        3,
        64,
        4,
        96,
        300,
        num_kv_heads=2,
        rotary_dim=16,
        rotary_base=500000.0,
        rotary_scaling=architecture.RotaryScaling(8.0, 1.0, 4.0, 8192),
        tied_embeddings=True,
      )
    model = random_model.write_sizes(root, family, sizes, dtype)
    streamed, stock = os.path.join(root, 'a'), os.path.join(root, 'b')
    ct2_int8.convert(model, streamed)
    ctranslate2.converters.TransformersConverter(model).convert(
      stock, quantization='int8'
    )
    names = sorted(os.listdir(stock))
    self.assertIn('model.bin', names)
    self.assertEqual(sorted(os.listdir(streamed)), names)
    _, different, unread = filecmp.cmpfiles(
      streamed, stock, names, shallow=False
    )
    self.assertEqual((different, unread), ([], []))
    tokens = np.random.default_rng(0).integers(1, 299, 20).tolist()
    logits = [
      np.asarray(
        ctranslate2.Generator(
          path, device='cpu', compute_type='int8_float32'
        ).forward_batch([tokens])
      )
      for path in (streamed, stock)
    ]
    self.assertEqual(logits[0].shape, (1, 20, 300))
    np.testing.assert_array_equal(*logits)
    self.assertGreater(np.ptp(logits[0]), 0)


if __name__ == '__main__':
  absltest.main()
