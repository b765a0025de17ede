"""Tests that converted weights give the same logits as transformers.

The tests need PyTorch. They run the reference model, and save it in each format
with the libraries that users save it with.
"""

import collections
import os

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
from safetensors import torch as safetensors_torch
import torch
import transformers

from converters.convert import conversion
from converters.convert import random_weights
from converters.hf import torch_file
from converters.testing import numpy_gptj
from saxml_ext.families import hf_config
from saxml_ext.pax import errors
from saxml_ext.pax.testing import checkpoints

_ROTARY_DIM = 4
_TOKENS = np.array([3, 1, 4, 1, 5, 9, 2, 6])


def _reference() -> transformers.GPTJForCausalLM:
  torch.manual_seed(0)
  config = transformers.GPTJConfig(
    vocab_size=11,
    n_positions=32,
    n_embd=16,
    n_layer=2,
    n_head=2,
    rotary_dim=_ROTARY_DIM,
    bos_token_id=0,
    eos_token_id=0,
    tie_word_embeddings=False,
  )
  model = transformers.GPTJForCausalLM(config).eval()
  with torch.no_grad():
    for parameter in model.parameters():
      # Layer norms are changed too. A scale that is read as 1 + scale would
      # give different logits.
      parameter.copy_(torch.randn_like(parameter) * 0.5)
  return model


def _logits(model: transformers.GPTJForCausalLM) -> np.ndarray:
  with torch.no_grad():
    return model(torch.from_numpy(_TOKENS)[None]).logits[0].float().numpy()


class LogitsTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    self.model = _reference()
    self.base = self.create_tempdir().full_path
    self.model.config.save_pretrained(self.base)

  def converted_logits(self) -> np.ndarray:
    pax = self.create_tempdir().full_path
    conversion.convert(self.base, pax, 'float32')
    return numpy_gptj.logits(
      checkpoints.read_variables(pax), _TOKENS, _ROTARY_DIM
    )

  def assertSameLogits(self) -> None:
    np.testing.assert_allclose(
      self.converted_logits(), _logits(self.model), rtol=0, atol=1e-5
    )

  @parameterized.parameters('50GB', '5KB')
  def test_save_pretrained(self, shard_size):
    self.model.save_pretrained(self.base, max_shard_size=shard_size)
    self.assertEqual(
      'model.safetensors' in os.listdir(self.base), shard_size == '50GB'
    )
    self.assertSameLogits()

  def test_torch_save(self):
    torch.save(
      self.model.state_dict(), os.path.join(self.base, 'pytorch_model.bin')
    )
    self.assertSameLogits()

  def test_torch_save_of_parameters_and_shared_storage(self):
    state = collections.OrderedDict(self.model.named_parameters())
    # The two tensors are views of one storage, the second of them transposed.
    # This tests offsets and strides.
    pair = torch.stack(
      [
        state['transformer.h.0.attn.q_proj.weight'].detach(),
        state['transformer.h.0.attn.k_proj.weight'].detach().T,
      ]
    )
    state['transformer.h.0.attn.q_proj.weight'] = pair[0]
    state['transformer.h.0.attn.k_proj.weight'] = pair[1].T
    torch.save(state, os.path.join(self.base, 'pytorch_model.bin'))
    self.assertSameLogits()

  @parameterized.parameters(torch.bfloat16, torch.float16)
  def test_half_precision(self, dtype):
    state = {n: t.to(dtype) for n, t in self.model.state_dict().items()}
    torch.save(state, os.path.join(self.base, 'pytorch_model.bin'))
    from_bin = self.converted_logits()
    os.remove(os.path.join(self.base, 'pytorch_model.bin'))
    safetensors_torch.save_file(
      state, os.path.join(self.base, 'model.safetensors')
    )
    np.testing.assert_array_equal(self.converted_logits(), from_bin)
    self.model.load_state_dict(state)  # Rounded, but in float32.
    np.testing.assert_allclose(from_bin, _logits(self.model), rtol=0, atol=1e-5)

  @parameterized.product(file_format=('bin', 'safetensors'), shards=(1, 3))
  def test_random_checkpoints_load_in_transformers(self, file_format, shards):
    random_weights.write(
      self.base,
      hf_config.HFConfig(2, 16, 2, 64, 11, rotary_dim=_ROTARY_DIM),
      file_format,
      shards,
      dtype='float32',
    )
    self.model, info = transformers.GPTJForCausalLM.from_pretrained(
      self.base, output_loading_info=True
    )
    self.assertEmpty(info['missing_keys'])
    self.assertEmpty(info['unexpected_keys'])
    self.assertSameLogits()

  def test_other_objects_that_torch_saves_are_refused(self):
    path = os.path.join(self.base, 'pytorch_model.bin')
    for value, message in (
      (self.model, 'refers to '),
      ({'model': self.model.state_dict()}, 'is a dict'),
      ({'step': 3}, 'is a int'),
    ):
      torch.save(value, path)
      with self.assertRaisesRegex(errors.CheckpointError, message):
        torch_file.TorchFile(path)

  def test_legacy_format_is_refused(self):
    path = os.path.join(self.base, 'pytorch_model.bin')
    torch.save(
      self.model.state_dict(), path, _use_new_zipfile_serialization=False
    )
    with self.assertRaisesRegex(errors.CheckpointError, 'not a zip archive'):
      torch_file.TorchFile(path)


if __name__ == '__main__':
  absltest.main()
