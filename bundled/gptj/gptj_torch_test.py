"""Tests that the training model computes the same as transformers' GPT-J."""

from absl.testing import absltest
import torch
import transformers

from bundled.gptj import gptj_torch


class GptjTorchTest(absltest.TestCase):
  def test_logits_equal_those_of_transformers(self):
    torch.manual_seed(0)
    config = transformers.GPTJConfig(
      vocab_size=97,
      n_positions=64,
      n_embd=48,
      n_layer=3,
      n_head=3,
      rotary_dim=8,
      resid_pdrop=0.0,
      embd_pdrop=0.0,
      attn_pdrop=0.0,
      tie_word_embeddings=False,
    )
    ours = gptj_torch.GPTJ(config).eval()
    for weight in ours.parameters():
      torch.nn.init.normal_(weight, std=0.3)
    theirs = transformers.GPTJForCausalLM(config).eval()
    theirs.load_state_dict(ours.state_dict(), strict=True)
    ids = torch.randint(0, 97, (2, 40))
    with torch.inference_mode():
      want = theirs(ids).logits
      torch.testing.assert_close(ours(ids), want, atol=2e-4, rtol=1e-4)


if __name__ == '__main__':
  absltest.main()
