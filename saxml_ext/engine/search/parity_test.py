"""The engine's hypotheses are those of transformers' beam search."""

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import torch
import transformers

from saxml_ext.engine import config as config_lib
from saxml_ext.engine import request as request_lib
from saxml_ext.engine import runner as runner_lib
from saxml_ext.engine import weights as weights_lib
from saxml_ext.engine.testing import fast_compile
from saxml_ext.engine.testing import serving

fast_compile.install()

_EOS = 0
_LIMITS = dict(max_new_tokens=24, min_new_tokens=6)


def _reference_model(vocab_size: int) -> transformers.GPTJForCausalLM:
  torch.manual_seed(0)
  torch.set_num_threads(1)
  model = transformers.GPTJForCausalLM(
    transformers.GPTJConfig(
      vocab_size=vocab_size,
      n_positions=128,
      n_embd=64,
      n_layer=2,
      n_head=4,
      rotary_dim=8,
      bos_token_id=_EOS,
      eos_token_id=_EOS,
      tie_word_embeddings=False,
    )
  )
  with torch.no_grad():
    # Sharper than the initial weights, so that the beams really differ; and
    # biased towards the end, so that some end early.
    model.lm_head.weight.mul_(30)
    model.lm_head.bias[_EOS] = 1.5
  return model.eval()


def _pax_variables(model: transformers.GPTJForCausalLM):
  """The model's weights under PAX names."""
  state = {k: v.numpy() for k, v in model.state_dict().items()}
  d, n = model.config.n_embd, model.config.n_head
  lm = 'params.lm'
  result = {
    f'{lm}.embedding_lookup.emb_var': state['transformer.wte.weight'],
    f'{lm}.final_ln.scale': state['transformer.ln_f.weight'],
    f'{lm}.final_ln.bias': state['transformer.ln_f.bias'],
    f'{lm}.softmax.logits_ffn.linear.w': state['lm_head.weight'].T,
    f'{lm}.softmax.logits_ffn.bias.b': state['lm_head.bias'],
  }
  for i in range(model.config.n_layer):
    old, new = f'transformer.h.{i}', f'{lm}.transformer.x_layers_{i}'
    qkv = [state[f'{old}.attn.{c}_proj.weight'] for c in 'qkv']
    ffn = f'{new}.ff_layer.ffn_layer'
    result |= {
      f'{new}.self_attention.combined_qkv.w': np.stack(
        [w.T.reshape(d, n, d // n) for w in qkv]
      ),
      f'{new}.self_attention.post.w': (
        state[f'{old}.attn.out_proj.weight'].reshape(d, n, d // n)
      ),
      f'{ffn}1.linear.w': state[f'{old}.mlp.fc_in.weight'].T,
      f'{ffn}1.bias.b': state[f'{old}.mlp.fc_in.bias'],
      f'{ffn}2.linear.w': state[f'{old}.mlp.fc_out.weight'].T,
      f'{ffn}2.bias.b': state[f'{old}.mlp.fc_out.bias'],
      f'{new}.layer_norm.scale': state[f'{old}.ln_1.weight'],
      f'{new}.layer_norm.bias': state[f'{old}.ln_1.bias'],
    }
  return result


class ParityTest(parameterized.TestCase):
  # More beams than int8 numbers, in slots that are taken again.
  @parameterized.parameters((96, 4, 6, 24, 5), (512, 150, 2, 3, 2))
  def test_hypotheses_are_those_of_transformers(
    self, vocab_size, beams, slots, count, least_lengths
  ):
    reference = _reference_model(vocab_size)
    variables = _pax_variables(reference)
    model_config = config_lib.ModelConfig.from_pax(variables, rotary_dim=8)
    runner = runner_lib.Runner(
      weights_lib.from_pax(variables, model_config),
      model_config,
      config_lib.EngineConfig(
        eos_id=_EOS,
        num_slots=slots,
        max_prompt=40,
        prompt_buckets=(16, 40),
        prompt_segments=(24, 40),
        num_beams=beams,
        suffix_block=8,
        **_LIMITS,
      ),
    )
    rng = np.random.default_rng(3)
    prompts = [
      rng.integers(1, vocab_size, n).astype(np.int32)
      for n in rng.integers(1, 41, count)
    ]
    results = serving.serve(runner, [request_lib.Request(p) for p in prompts])
    lengths = set()
    for prompt, result in zip(prompts, results):
      self._check(reference, prompt, result, beams)
      lengths.update(len(h.tokens) for h in result.hypotheses)
    # Some ended by themselves and some at the limit, or this shows little.
    self.assertIn(24, lengths)
    self.assertGreaterEqual(len(lengths), least_lengths)

  def _check(self, reference, prompt, result, beams):
    with torch.no_grad():
      expected = reference.generate(
        torch.tensor(prompt[None].astype(np.int64)),
        attention_mask=torch.ones((1, len(prompt)), dtype=torch.long),
        num_beams=beams,
        num_return_sequences=beams,
        early_stopping=True,
        do_sample=False,
        pad_token_id=_EOS,
        return_dict_in_generate=True,
        output_scores=True,
        **_LIMITS,
      )
    self.assertLen(result.hypotheses, beams)
    for i, got in enumerate(result.hypotheses):
      tokens = expected.sequences[i, len(prompt) :].numpy()
      np.testing.assert_array_equal(got.tokens, tokens[: len(got.tokens)])
      np.testing.assert_array_equal(tokens[len(got.tokens) :], _EOS)
      self.assertAlmostEqual(
        got.score, float(expected.sequences_scores[i]), places=4
      )


if __name__ == '__main__':
  absltest.main()
