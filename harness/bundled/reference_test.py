"""The recorded answers are those of the reference implementation."""

import json
import os

from absl.testing import absltest
from absl.testing import parameterized
import torch

from harness.bundled import reference
from saxml_ext.common import dataset
from saxml_ext.common import rouge

_HERE = os.path.dirname(__file__)
_ARTICLES = 4  # The whole set takes minutes: `:reference` runs it.


class ReferenceTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    with open(os.path.join(_HERE, 'reference.json'), encoding='utf-8') as file:
      self._recorded = json.load(file)['tokens'][:_ARTICLES]
    self._articles = dataset.load_articles(
        os.path.join(_HERE, 'eval.json'), _ARTICLES
    )
    self._tokenizer = dataset.load_tokenizer(
        os.path.join(_HERE, 'model/tokenizer.json')
    )
    self._prompts = dataset.encode_prompts(self._articles, self._tokenizer, 512)

  def _rouge1(self, tokens):
    highlights = [article.output for article in self._articles]
    return rouge.score_tokens(
        dict(enumerate(tokens)), highlights, self._tokenizer
    ).rouge1

  def test_first_answers_are_the_recorded_ones(self):
    model = reference.load(os.path.join(_HERE, 'model'))
    tokens = reference.generate(model, self._prompts, 'reference')
    self.assertEqual(tokens, self._recorded)

  def test_rounding_to_4_bits_falls_below_the_99_percent_line(self):
    model = reference.load(os.path.join(_HERE, 'model'))
    reference.round_weights(model, 4)
    tokens = reference.generate(model, self._prompts, 'rounded')
    self.assertLess(self._rouge1(tokens), 0.99 * self._rouge1(self._recorded))

  @parameterized.parameters(4, 8)
  def test_rounding_leaves_the_levels_of_so_many_bits(self, bits):
    layer = torch.nn.Linear(64, 3)
    before = layer.weight.detach().clone()
    reference.round_weights(layer, bits)
    top = 2 ** (bits - 1) - 1
    step = before.abs().amax(dim=1, keepdim=True) / top
    levels = layer.weight.detach() / step
    torch.testing.assert_close(levels, levels.round(), atol=1e-3, rtol=0)
    self.assertLessEqual(
        ((layer.weight - before).abs() / step).max().item(), 0.5001
    )


if __name__ == '__main__':
  absltest.main()
