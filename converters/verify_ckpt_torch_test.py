"""Compares logits of transformers and of the engine; needs PyTorch."""

import contextlib
import io
import json
import os
from typing import Any

from absl.testing import absltest
from absl.testing import flagsaver
from absl.testing import parameterized
import numpy as np
import tokenizers

from converters import verify_ckpt
from converters.convert import conversion
from converters.testing import small_models
from saxml_ext.pax.testing import checkpoints

_TEXT = 'a b c a d e f a a b g h c d e f b'


class VerifyLogitsTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    root = self.create_tempdir().full_path
    # Smaller weights give logits that fit the tolerance.
    tensors = {n: t / 4 for n, t in small_models.state_dict().items()}
    self.base = small_models.save(os.path.join(root, 'hf'), tensors)
    words = ['?', *'abcdefghi', '<eos>']
    tokenizer = tokenizers.Tokenizer(
      tokenizers.models.WordLevel(
        {word: i for i, word in enumerate(words)}, unk_token='?'
      )
    )
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    tokenizer.save(os.path.join(self.base, 'tokenizer.json'))
    self.pax = os.path.join(root, 'pax')

  def verify(self) -> tuple[int, str]:
    out = io.StringIO()
    status: Any = 0
    with (
      flagsaver.flagsaver(
        base=self.base, pax=self.pax, logits=True, text=[_TEXT]
      ),
      contextlib.redirect_stdout(out),
    ):
      try:
        verify_ckpt.main(['verify_ckpt'])
      except SystemExit as e:
        status = e.code
    return status, out.getvalue()

  @parameterized.parameters('float32', 'bfloat16')
  def test_equal(self, dtype):
    conversion.convert(self.base, self.pax, dtype)
    status, out = self.verify()
    self.assertEqual(status, 0, out)
    self.assertRegex(
      out, r'logits: transformers, engine +16 positions +\S+e-0\d +mean'
    )
    self.assertIn('All 21 variables and 1 comparisons of logits match', out)

  def test_wrong_description_is_reported(self):
    conversion.convert(self.base, self.pax, 'float32')
    path = os.path.join(self.pax, 'gptj_config.json')
    with open(path) as f:
      description = json.load(f)
    with open(path, 'w') as f:
      json.dump(description | {'rotary_dim': 8}, f)
    status, out = self.verify()
    self.assertEqual(status, 1)
    self.assertRegex(out, r'logits: .*exceeds the tolerance 0.0001')

  def test_wrong_weight_is_reported(self):
    conversion.convert(self.base, self.pax, 'float32')
    variables = checkpoints.read_variables(self.pax)
    name = 'params.lm.transformer.x_layers_1.self_attention.post.w'
    variables[name] = np.roll(variables[name], 1, 0)
    checkpoints.write_checkpoint(
      self.pax,
      variables.items(),
      step=1,  # The newer step is used.
    )
    status, out = self.verify()
    self.assertEqual(status, 1)
    self.assertRegex(out, rf'{name} .*differs')
    self.assertRegex(out, r'logits: .*exceeds the tolerance')


if __name__ == '__main__':
  absltest.main()
