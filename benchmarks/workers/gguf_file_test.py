"""Tests the files for llama.cpp with the reader of its authors."""

import os

from absl.testing import absltest
import gguf
from gguf import quants
import numpy as np

from benchmarks import random_model
from benchmarks.workers import gguf_file
from converters.convert import model_source
from saxml_ext.engine import architecture
from saxml_ext.families import hf_config

_SIZES = hf_config.HFConfig(
  2,
  64,
  4,
  96,
  300,
  num_kv_heads=2,
  rotary_dim=16,
  rotary_base=500000.0,
  rotary_scaling=architecture.RotaryScaling(32.0, 1.0, 4.0, 8192),
  tied_embeddings=True,
)


class GGUFFileTest(absltest.TestCase):
  def test_tensors_and_sizes(self):
    root = self.create_tempdir().full_path
    model = random_model.write_sizes(root, 'llama', _SIZES, 'bfloat16')
    source = model_source.ModelSource(model).checkpoint
    for dtype, error in (('q8_0', 0.0005), ('q4_0', 0.015)):
      path = os.path.join(root, dtype)
      gguf_file.write(model, path, dtype)
      reader = gguf.GGUFReader(path)
      tensors = {
        t.name: quants.dequantize(t.data, t.tensor_type) for t in reader.tensors
      }
      # Nine tensors in each layer, the embedding, the norm, and frequencies.
      self.assertLen(tensors, 2 * 9 + 3)
      self.assertEqual(reader.fields['llama.vocab_size'].contents(), 300)
      self.assertEqual(
        reader.fields['llama.attention.head_count_kv'].contents(), 2
      )
      for name, target in (
        ('model.embed_tokens', 'token_embd'),
        ('model.norm', 'output_norm'),
        ('model.layers.1.mlp.down_proj', 'blk.1.ffn_down'),
      ):
        np.testing.assert_allclose(
          tensors[f'{target}.weight'],
          source.read(f'{name}.weight').astype(np.float32),
          atol=error,
        )
      # Rows 0 and 8 of a head rotate together, which are rows 0 and 1 here.
      keys = source.read('model.layers.0.self_attn.k_proj.weight')
      keys = keys.astype(np.float32)[[0, 8, 1, 9]]
      np.testing.assert_allclose(
        tensors['blk.0.attn_k.weight'][:4], keys, atol=error
      )
      # The shortest wavelengths stay, and the longest become 32 times as long.
      factors = tensors['rope_freqs.weight']
      np.testing.assert_allclose(factors[[0, -1]], [1, 32], rtol=1e-4)


if __name__ == '__main__':
  absltest.main()
