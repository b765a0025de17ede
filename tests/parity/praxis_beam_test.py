"""Compares the engine's Pax rule with praxis' beam search on equal weights."""

import functools

from absl.testing import absltest
from absl.testing import parameterized
from flax import traverse_util
import jax
import jax.numpy as jnp
import numpy as np

from saxml_ext.engine import config as config_lib
from saxml_ext.engine import model as model_lib
from saxml_ext.engine import request as request_lib
from saxml_ext.engine import runner as runner_lib
from saxml_ext.engine import weights as weights_lib
from saxml_ext.engine.testing import random_model
from saxml_ext.engine.testing import serving
from saxml_ext.families import praxis_models

# praxis can be imported once the modules above have prepared it.
# isort: split
from praxis import base_layer
from praxis import decoder_hparams
from praxis import py_utils

_EOS = 5
_STOPS = (_EOS, 77)
_MAX_PROMPT = 24
_CONFIG = config_lib.ModelConfig(
  num_layers=2,
  model_dim=32,
  num_heads=4,
  head_dim=8,
  hidden_dim=64,
  rotary_dim=4,
  vocab_size=96,
)
# praxis gives missing hypotheses this score, which is far below any real one.
_FILLER = -1e6


@functools.cache
def _variables():
  variables = random_model.variables(_CONFIG, seed=1, scale=5)
  # With this bias, the hypotheses of one search end at many different steps.
  variables['params.lm.softmax.logits_ffn.bias.b'][_EOS] = 3.0
  return variables


@functools.cache
def _prompts():
  rng = np.random.default_rng(2)
  lengths = [1, _MAX_PROMPT, *rng.integers(2, _MAX_PROMPT, 14)]
  return [rng.integers(6, 96, n).astype(np.int32) for n in lengths]


def _apply(method, *args, **kwargs):
  """Calls a method of praxis' model, without any randomness."""
  hparams = base_layer.JaxContext.HParams(do_eval=True)
  with base_layer.JaxContext.new_context(hparams=hparams):
    return base_layer.instantiate(praxis_models.gptj(_CONFIG)).apply(
      traverse_util.unflatten_dict(_variables(), sep='.'),
      *args,
      method=method,
      **kwargs,
    )


@functools.partial(jax.jit, static_argnames='settings')
def _decode(ids, paddings, *, settings):
  # Upstream builds these settings from the serving params in the same way.
  hparams = decoder_hparams.BeamSearchHParams(
    fprop_for_prefix=True, seqlen=10**6, eos_id=list(_STOPS), **dict(settings)
  )
  batch = py_utils.NestedMap(ids=ids, paddings=paddings)
  (_, result, _), _ = _apply(
    lambda lm, batch: lm.decode_with_params(hparams, batch),
    batch,
    mutable=[base_layer.DECODE_CACHE],
    rngs={base_layer.RANDOM: jax.random.key(0)},
  )
  return result.output_ids, result.decode_lengths, result.scores


def _praxis(prompts, **settings):
  """Returns K hypotheses (tokens, score) per prompt, best first."""
  ids = np.zeros((len(prompts), _MAX_PROMPT), np.int32)
  paddings = np.ones(ids.shape, np.float32)
  for row, prompt in enumerate(prompts):
    ids[row, : len(prompt)] = prompt
    paddings[row, : len(prompt)] = 0
  outputs = jax.device_get(
    _decode(ids, paddings, settings=tuple(sorted(settings.items())))
  )
  return [
    [(t[len(p) : n], s) for t, n, s in zip(tokens, lengths, scores)]
    for p, tokens, lengths, scores in zip(prompts, *outputs)
  ]


def _ours(prompts, beam_size, max_decode_steps, min_decode_steps=0, **settings):
  """Returns the hypotheses of each prompt, and the runner that made them."""
  runner = runner_lib.Runner(
    weights_lib.from_pax(_variables(), _CONFIG),
    _CONFIG,
    config_lib.EngineConfig(
      eos_id=_EOS,
      num_slots=4,
      decode_widths=(4,),
      max_prompt=_MAX_PROMPT,
      max_new_tokens=max_decode_steps,
      min_new_tokens=min_decode_steps,
      num_beams=beam_size,
      search='pax',
      max_stop_ids=len(_STOPS),
      suffix_block=8,
      **settings,
    ),
  )
  requests = [request_lib.Request(p, stop_ids=_STOPS) for p in prompts]
  results = serving.serve(runner, requests)
  return [result.hypotheses for result in results], runner


class PraxisBeamTest(parameterized.TestCase):
  def test_logits_agree(self):
    ids = np.random.default_rng(0).integers(0, 96, (3, 17)).astype(np.int32)

    @jax.jit  # One program compiles faster than one for each operation.
    def theirs(ids: jax.Array) -> jax.Array:
      return _apply(lambda lm, x: lm.lm(x, jnp.zeros(x.shape)).logits, ids)

    weights = weights_lib.from_pax(_variables(), _CONFIG)
    x, _ = model_lib.prefill(weights, _CONFIG, ids, 'float32')
    ours = model_lib.logits(weights, _CONFIG, x)
    np.testing.assert_allclose(ours, theirs(ids), atol=1e-4)

  @parameterized.parameters(
    dict(length_norm_alpha=0.5),
    dict(length_norm_alpha=1.0, min_decode_steps=6),
    dict(length_norm_alpha=0.0, tokens_per_beam=2),
    dict(length_norm_alpha=-0.3, tokens_per_beam=7, beam_size=3),
  )
  def test_hypotheses_match_praxis(self, **settings):
    settings = dict(beam_size=4, max_decode_steps=20) | settings
    ours, _ = _ours(_prompts(), **settings)
    self._check(ours, _praxis(_prompts(), **settings))

  @parameterized.parameters(
    dict(length_norm_alpha=2.0),
    dict(length_norm_alpha=1.0, tokens_per_beam=1),
  )
  def test_early_exit_matches_praxis_for_each_prompt(self, **settings):
    settings |= dict(beam_size=4, max_decode_steps=20, early_exit=True)
    ours, _ = _ours(_prompts(), **settings)
    alone = [_praxis([p], **settings)[0] for p in _prompts()]
    self._check(ours, alone)
    if settings['length_norm_alpha'] < 2:
      return  # The check above is enough.
    # Prompts run alone, because praxis continues a batch until its last prompt
    # is done.
    together = _praxis(_prompts(), **settings)

    def tokens(hypotheses):
      return [t.tolist() for t, _ in hypotheses]

    changed = [tokens(a) != tokens(b) for a, b in zip(alone, together)]
    self.assertTrue(any(changed))

  def test_missing_hypotheses_are_left_out(self):
    # In one step, only the single existing beam can end.
    settings = dict(beam_size=4, max_decode_steps=1, length_norm_alpha=0.8)
    ours, _ = _ours(_prompts(), **settings)
    for got, expected in zip(ours, _praxis(_prompts(), **settings)):
      (tokens, score), *fillers = expected
      self.assertLen(got, 1)
      np.testing.assert_array_equal(got[0].tokens, tokens)
      np.testing.assert_allclose(got[0].score, score, rtol=1e-5)
      for tokens, score in fillers:
        self.assertLess(score, _FILLER)
        np.testing.assert_array_equal(tokens, [0])

  def test_running_beams_are_returned_if_none_could_end(self):
    settings = dict(beam_size=4, max_decode_steps=6, min_decode_steps=6)
    settings |= dict(length_norm_alpha=0.8)
    ours, runner = _ours(_prompts(), **settings)
    for prompt, got, expected in zip(
      _prompts(), ours, _praxis(_prompts(), **settings)
    ):
      self.assertLen(got, 4)
      # praxis returns the beams before the last token, without a real score.
      before = [tokens[:5].tolist() for tokens, _ in expected]
      for tokens, score in expected:
        self.assertLess(score, _FILLER)
        self.assertEqual(tokens[5], 0)
      for hypothesis in got:
        self.assertLen(hypothesis.tokens, 6)
        self.assertNoCommonElements(_STOPS, hypothesis.tokens)
        self.assertIn(hypothesis.tokens[:5].tolist(), before)
        true = runner.score(prompt, hypothesis.tokens)
        self.assertAlmostEqual(hypothesis.logprob, true, places=4)
        self.assertAlmostEqual(
          hypothesis.score, true / (11 / 5) ** 0.8, places=4
        )

  def _check(self, ours, theirs):
    """Checks that tokens and scores are equal, except for praxis' filler."""
    lengths = set()
    for got, expected in zip(ours, theirs, strict=True):
      expected = [(t, s) for t, s in expected if s > _FILLER]
      self.assertLen(got, len(expected))
      for our, (tokens, score) in zip(got, expected):
        np.testing.assert_array_equal(our.tokens, tokens)
        np.testing.assert_allclose(our.score, score, rtol=1e-5)
        lengths.add(len(tokens))
    # The hypotheses must end at many different lengths for a meaningful test.
    self.assertGreater(len(lengths), 6)


if __name__ == '__main__':
  absltest.main()
