"""The recorded answers are those of the reference implementation."""

import json
import os

from absl.testing import absltest
from absl.testing import parameterized
import torch

from harness import dataset
from harness.bundled import reference

_HERE = os.path.dirname(__file__)
_ARTICLES = 6  # The whole set takes minutes: `:reference` runs it.


class ReferenceTest(parameterized.TestCase):

  def test_first_answers_are_the_recorded_ones(self):
    with open(os.path.join(_HERE, 'reference.json'), encoding='utf-8') as file:
      recorded = json.load(file)['tokens'][:_ARTICLES]
    model = reference.load(os.path.join(_HERE, 'model'))
    prompts = dataset.encode_prompts(
        dataset.load_articles(os.path.join(_HERE, 'eval.json'), _ARTICLES),
        dataset.load_tokenizer(os.path.join(_HERE, 'model/tokenizer.json')),
        512,
    )
    self.assertEqual(reference.generate(model, prompts, 'reference'), recorded)

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
