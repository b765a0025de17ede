"""Spreading the channels changes the weights and not one logit."""

from absl.testing import absltest
import torch
import transformers

from harness.bundled import spread


class SpreadTest(absltest.TestCase):

  def test_logits_stay_the_same_to_the_bit(self):
    torch.manual_seed(0)
    config = transformers.GPTJConfig(
        vocab_size=64,
        n_positions=32,
        n_embd=32,
        n_layer=2,
        n_head=2,
        rotary_dim=8,
        bos_token_id=0,
        eos_token_id=0,
        tie_word_embeddings=False,
    )
    model = transformers.GPTJForCausalLM(config).eval()
    ids = torch.randint(0, 64, (2, 20))
    with torch.inference_mode():
      before = model(ids).logits
    state = {name: w.clone() for name, w in model.state_dict().items()}
    spread.spread(state)
    changed = [
        name
        for name, weight in model.state_dict().items()
        if not torch.equal(weight, state[name])
    ]
    self.assertIn('transformer.h.1.attn.out_proj.weight', changed)
    self.assertIn('lm_head.weight', changed)
    model.load_state_dict(state)
    with torch.inference_mode():
      torch.testing.assert_close(model(ids).logits, before, atol=0, rtol=0)


if __name__ == '__main__':
  absltest.main()
