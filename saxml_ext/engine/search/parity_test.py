"""Tests that the engine finds the hypotheses of transformers' beam search."""

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import torch

from saxml_ext.engine import config as config_lib
from saxml_ext.engine import request as request_lib
from saxml_ext.engine import runner as runner_lib
from saxml_ext.engine import weights as weights_lib
from saxml_ext.engine.testing import serving
from saxml_ext.engine.testing import small_gptj

_EOS = small_gptj.EOS
_LIMITS = dict(max_new_tokens=24, min_new_tokens=6)


class ParityTest(parameterized.TestCase):
  # The second case has more beams than int8 can number, and reuses its slots.
  @parameterized.parameters((96, 4, 6, 24, 5), (512, 150, 2, 3, 2))
  def test_hypotheses_are_those_of_transformers(
    self, vocab_size, beams, slots, count, least_lengths
  ):
    reference = small_gptj.model(vocab_size)
    variables = small_gptj.pax_variables(reference)
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
        max_logprobs=3,
        **_LIMITS,
      ),
    )
    rng = np.random.default_rng(3)
    prompts = [
      rng.integers(1, vocab_size, n).astype(np.int32)
      for n in rng.integers(1, 41, count)
    ]
    requests = [request_lib.Request(p, logprobs=3) for p in prompts]
    results = serving.serve(runner, requests)
    lengths = set()
    for prompt, result in zip(prompts, results):
      self._check(reference, prompt, result, beams)
      lengths.update(len(h.tokens) for h in result.hypotheses)
    # The comparison covers answers that end at a stop id and at the limit.
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
    self._check_logprobs(reference, prompt, result.hypotheses[0])

  def _check_logprobs(self, reference, prompt, got):
    tokens = np.concatenate([prompt, got.tokens])
    with torch.no_grad():
      logits = reference(torch.tensor(tokens[None].astype(np.int64))).logits[0]
    logits = logits[len(prompt) - 1 : -1]
    expected = torch.log_softmax(logits, -1)
    best, ids = expected.topk(3)
    positions = np.arange(len(got.tokens))
    np.testing.assert_allclose(
      got.token_logprobs, expected[positions, got.tokens], atol=1e-4
    )
    np.testing.assert_array_equal(got.alternatives[0], ids)
    np.testing.assert_allclose(got.alternatives[1], best, atol=1e-4)


if __name__ == '__main__':
  absltest.main()
