"""Tests modified versions of the model."""

import copy

from absl.testing import absltest
from absl.testing import parameterized
import torch
import transformers

from bundled.summaries.baselines import variants


def _model() -> transformers.GPTJForCausalLM:
  torch.manual_seed(0)
  model = transformers.GPTJForCausalLM(
    transformers.GPTJConfig(
      vocab_size=61,
      n_positions=32,
      n_embd=16,
      n_layer=2,
      n_head=2,
      rotary_dim=4,
      bos_token_id=60,
      eos_token_id=60,
      tie_word_embeddings=False,
    )
  )
  for parameter in model.parameters():
    torch.nn.init.normal_(parameter, std=0.3)
  return model.eval()


def setUpModule():
  torch.set_num_threads(1)  # More threads are not faster.


class VariantsTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    self._model = _model()
    self._ids = torch.randint(0, 60, (2, 9))

  @torch.inference_mode()
  def _logits(self, model):
    return model(self._ids).logits

  def test_spreading_changes_no_bit_of_the_logits(self):
    spread = variants.spread(self._model)
    self.assertTrue(
      torch.equal(self._logits(spread), self._logits(self._model))
    )
    before = self._model.lm_head.weight.abs().amax(dim=0)
    after = spread.lm_head.weight.abs().amax(dim=0)
    ratios = (before / after).log2()
    self.assertEqual(set(ratios.tolist()), {-2.0, -1.0, 0.0, 1.0, 2.0})

  def test_spreading_makes_rounding_worse(self):
    prompts, answers = [[1, 2, 3]] * 4, [[4 + i, 5, 6, 7] for i in range(4)]
    plain, spread = (
      variants.divergence(
        self._model, variants.rounded(model, 4), prompts, answers
      )
      for model in (self._model, variants.spread(self._model))
    )
    self.assertGreater(spread, plain)

  @parameterized.parameters(4, 8)
  def test_rounding_leaves_the_levels_of_so_many_bits(self, bits):
    layer = torch.nn.Linear(64, 3)
    before = layer.weight.detach().clone()
    variants.round_weights(layer, bits)
    top = 2 ** (bits - 1) - 1
    step = before.abs().amax(dim=1, keepdim=True) / top
    levels = layer.weight.detach() / step
    torch.testing.assert_close(levels, levels.round(), atol=1e-3, rtol=0)
    self.assertLessEqual(
      ((layer.weight - before).abs() / step).max().item(), 0.5001
    )

  def test_copies_leave_the_model_unchanged(self):
    before = copy.deepcopy(self._model.state_dict())
    logits = self._logits(self._model)
    copies = [
      variants.rounded(self._model, 3),
      variants.exact_gelu(self._model),
      variants.spread(self._model),
    ]
    for name, weight in self._model.state_dict().items():
      self.assertTrue(torch.equal(weight, before[name]))
    for other in copies[:2]:
      self.assertFalse(torch.equal(self._logits(other), logits))

  def test_exact_gelu_is_near_the_approximation(self):
    torch.testing.assert_close(
      self._logits(variants.exact_gelu(self._model)),
      self._logits(self._model),
      atol=0.05,
      rtol=0,
    )

  def test_divergence_counts_only_positions_of_answers(self):
    other = variants.rounded(self._model, 3)
    prompts, answers = [[1, 2, 3], [4, 5]], [[6, 7], [8, 9, 10, 11]]
    divergences = []
    for prompt, answer in zip(prompts, answers):
      ids = torch.tensor([prompt + answer])
      with torch.inference_mode():
        ours, theirs = (
          m(ids).logits[0, len(prompt) - 1 : -1].softmax(-1)
          for m in (self._model, other)
        )
      divergences += (ours * (ours / theirs).log()).sum(-1).tolist()
    divergence = variants.divergence(self._model, other, prompts, answers)
    self.assertAlmostEqual(
      divergence, sum(divergences) / len(divergences), places=5
    )
    self.assertGreater(divergence, 0)
    same = variants.divergence(self._model, self._model, prompts, answers)
    self.assertAlmostEqual(same, 0)


if __name__ == '__main__':
  absltest.main()
