"""Tests of the search options and of the optional outputs of a request."""

import dataclasses
import functools

from absl.testing import absltest
from absl.testing import parameterized
import jax
import numpy as np

from saxml_ext.engine import config as config_lib
from saxml_ext.engine import model as model_lib
from saxml_ext.engine import request as request_lib
from saxml_ext.engine import runner as runner_lib
from saxml_ext.engine import weights as weights_lib
from saxml_ext.engine.testing import random_model
from saxml_ext.engine.testing import serving

_MODEL = config_lib.ModelConfig(
  num_layers=2,
  model_dim=32,
  num_heads=2,
  head_dim=16,
  hidden_dim=64,
  rotary_dim=8,
  vocab_size=64,
)
_ENGINE = config_lib.EngineConfig(
  eos_id=0,
  num_slots=3,
  decode_widths=(3,),
  max_prompt=24,
  prompt_buckets=(24,),
  max_new_tokens=14,
  min_new_tokens=3,
  num_beams=4,
  suffix_block=5,
  search='any',
  num_samples=3,
  max_logprobs=5,
)


@functools.cache
def _weights():
  variables = random_model.variables(_MODEL, scale=3.0)
  return weights_lib.from_pax(variables, _MODEL)


@functools.cache
def _runner(**changes):
  engine = dataclasses.replace(_ENGINE, **changes)
  return runner_lib.Runner(_weights(), _MODEL, engine)


def _prompts(count):
  rng = np.random.default_rng(3)
  return [
    rng.integers(1, 64, rng.integers(1, 25)).astype(np.int32)
    for _ in range(count)
  ]


def _requests(count=8, **choices):
  return [request_lib.Request(p, **choices) for p in _prompts(count)]


@jax.jit
def _log_probs(tokens):
  x, _ = model_lib.prefill(_weights(), _MODEL, tokens[None], 'float32')
  return jax.nn.log_softmax(model_lib.logits(_weights(), _MODEL, x[0]))


def _forced(prompt, answer):
  """Returns the log-probabilities [N, V] at each position of an answer."""
  tokens = np.zeros(38, np.int32)
  tokens[: len(prompt)] = prompt
  tokens[len(prompt) : len(prompt) + len(answer)] = answer
  first = len(prompt) - 1
  return np.asarray(_log_probs(tokens))[first : first + len(answer)]


class ChoicesTest(parameterized.TestCase):
  def _assert_same(self, got, expected):
    self.assertEqual(serving.tokens(got), serving.tokens(expected))
    for a, b in zip(got, expected):
      self.assertEqual(
        [h.score for h in a.hypotheses], [h.score for h in b.hypotheses]
      )

  @parameterized.parameters(
    (dict(num_beams=2), {}),
    (
      dict(num_beams=2, length_penalty=2.0, early_stopping='never'),
      dict(length_penalty=2.0, early_stopping='never'),
    ),
  )
  def test_beams_are_those_of_an_engine_made_for_them(self, choices, settings):
    made = _runner(search='beam', num_beams=2, max_logprobs=0, **settings)
    expected = serving.serve(made, _requests())
    # These requests run together with requests that have other options.
    mixed = (
      _requests(**choices) + _requests(3) + _requests(2, beam_search=False)
    )
    order = [0, 8, 1, 11, 2, 9, 3, 12, 4, 10, 5, 6, 7]
    got = serving.serve(_runner(), mixed, order)
    self._assert_same(got[:8], expected)
    self.assertTrue(all(len(r.hypotheses) <= 2 for r in got[:8]))

  def test_samples_are_those_of_an_engine_made_for_them(self):
    choices = dict(temperature=1.3, seed=11)
    made = _runner(search='sample', num_beams=3, max_logprobs=0)
    expected = serving.serve(made, _requests(**choices))
    both = [
      r for r in _requests(beam_search=False, **choices) for _ in range(2)
    ]
    both[1::2] = _requests(num_beams=3)
    got = serving.serve(_runner(), both)
    self._assert_same(got[::2], expected)
    two = _requests(beam_search=False, num_samples=2, **choices)
    for few, all_three in zip(serving.serve(_runner(), two), expected):
      answers = {h.row: h.tokens.tolist() for h in all_three.hypotheses}
      self.assertEqual(
        {h.row: h.tokens.tolist() for h in few.hypotheses},
        {row: answers[row] for row in (0, 1)},
      )

  def test_samples_of_any_top_k_depend_on_the_request_alone(self):
    options = [
      dict(temperature=1.0, seed=1),
      dict(temperature=2.0, seed=2, top_k=50, top_p=0.9, num_samples=1),
      dict(temperature=1.5, seed=3, top_k=-1, min_new_tokens=14),
      dict(temperature=1.5, seed=4, top_k=9),
      dict(temperature=0.0, top_k=50),
    ]
    requests = [
      request_lib.Request(prompt, beam_search=False, logprobs=0, **choices)
      for prompt, choices in zip(_prompts(10), options * 2)
    ]
    settings = dict(max_top_k=10, max_logprobs=0, eos_id=5)
    alone = serving.serve(
      _runner(num_slots=1, decode_widths=(1,), **settings), requests
    )
    beams = _requests(3, num_beams=3)
    got = serving.serve(
      _runner(**settings),
      requests + beams,
      [0, 10, 1, 2, 11, 3, 4, 5, 12, 6, 7, 8, 9],
    )
    self._assert_same(got[:10], alone)
    for request, result in zip(requests, alone):
      for h in result.hypotheses:
        expected = _forced(request.tokens, h.tokens)
        np.testing.assert_allclose(
          h.token_logprobs,
          expected[np.arange(len(h.tokens)), h.tokens],
          atol=1e-4,
        )
        self.assertNotIn(5, h.tokens[: (request.min_new_tokens or 3) - 1])
    # Some tokens are beyond the likeliest ten.
    ranks = [
      (_forced(requests[2].tokens, h.tokens) > h.token_logprobs[:, None]).sum(1)
      for h in alone[2].hypotheses
    ]
    self.assertGreater(np.concatenate(ranks).max(), 10)

  @parameterized.parameters(True, False)
  def test_log_probabilities_are_the_models_own(self, beam_search):
    requests = _requests(
      logprobs=4, beam_search=beam_search, temperature=0.5, seed=1
    )
    requests += _requests(2, beam_search=beam_search)
    *with_logprobs, silent, _ = serving.serve(_runner(), requests)
    self.assertIsNone(silent.hypotheses[0].token_logprobs)
    self.assertIsNone(silent.hypotheses[0].alternatives)
    for request, result in zip(requests, with_logprobs[:8]):
      for h in result.hypotheses:
        expected = _forced(request.tokens, h.tokens)
        count = np.arange(len(h.tokens))
        np.testing.assert_allclose(
          h.token_logprobs, expected[count, h.tokens], atol=1e-4
        )
        ids, logprobs = h.alternatives
        # The alternatives include stop ids that are excluded before the
        # minimum.
        self.assertEqual(ids.shape, (len(h.tokens), 4))
        np.testing.assert_allclose(
          logprobs, -np.sort(-expected, 1)[:, :4], atol=1e-4
        )
        np.testing.assert_allclose(
          logprobs, np.take_along_axis(expected, ids, 1), atol=1e-4
        )

  @parameterized.parameters(None, 1, 3)
  def test_streams_are_beginnings_of_answers(self, max_steps):
    runner = _runner()
    requests = {
      0: request_lib.Request(_prompts(1)[0], stream=True, logprobs=2),
      1: request_lib.Request(
        _prompts(2)[1],
        stream=True,
        beam_search=False,
        num_samples=2,
        max_new_tokens=9,
        seed=4,
      ),
      2: request_lib.Request(_prompts(3)[2]),
    }
    runner.prefill_and_insert(requests)
    received = {0: [], 1: []}
    results = {}
    while len(results) < 3:
      results |= runner.step(max_steps)
      self.assertTrue(results.keys().isdisjoint(runner.progress))
      for slot, progress in runner.progress.items():
        received[slot].append(progress)
    self.assertEqual(runner.step(), {})
    self.assertEqual(runner.progress, {})
    best = results[0].hypotheses[0]
    self.assertNotEmpty(received[0])
    for progress in received[0]:
      (row,) = progress.rows
      n = len(row.tokens)
      np.testing.assert_array_equal(row.tokens, best.tokens[:n])
      np.testing.assert_array_equal(row.token_logprobs, best.token_logprobs[:n])
      if n:
        for a, b in zip(row.alternatives, best.alternatives):
          np.testing.assert_array_equal(a, b[:n])
    by_row = {h.row: h for h in results[1].hypotheses}
    for progress in received[1]:
      self.assertLen(progress.rows, 2)
      for index, row in enumerate(progress.rows):
        n = len(row.tokens)
        self.assertGreater(n, 0)
        np.testing.assert_array_equal(row.tokens, by_row[index].tokens[:n])
        self.assertEqual(row.finished, n == len(by_row[index].tokens))
        self.assertIsNone(row.token_logprobs)

  @parameterized.parameters(
    (dict(num_beams=5), 'num_beams is 5, but must be between 1 and 4'),
    (dict(num_beams=2, beam_search=False), 'num_beams is 2.*other kind'),
    (dict(num_samples=2), 'num_samples is 2.*other kind'),
    (dict(num_samples=4, beam_search=False), '4, but must be between 1 and 3'),
    (dict(length_penalty=float('nan')), 'nan, but must be between -8 and 8'),
    (
      dict(length_penalty=1.5, beam_search=False),
      'sampling, which this request uses',
    ),
    (dict(early_stopping=True, beam_search=False), 'True, but sampling'),
    (dict(early_stopping='soon'), "'soon', but must be True, False"),
    (dict(logprobs=6), 'logprobs is 6, but must be between 0 and 5'),
  )
  def test_choices_out_of_limits_are_refused(self, choices, message):
    with self.assertRaisesRegex(ValueError, message):
      _runner().check(request_lib.Request(np.ones(2, np.int32), **choices))

  def test_neutral_choices_of_beams_are_accepted_with_samples(self):
    _runner().check(
      request_lib.Request(
        np.ones(2, np.int32),
        beam_search=False,
        length_penalty=1.0,
        early_stopping=False,
      )
    )

  @parameterized.parameters(
    ('beam', dict(beam_search=False), 'False, but.* only beam search'),
    ('sample', dict(beam_search=True), 'True, but.* only samples'),
    ('pax', dict(length_penalty=1.0), "Pax's beam search, which this"),
  )
  def test_engines_of_one_search_refuse_others(self, search, choices, message):
    checks = request_lib.Checks(
      dataclasses.replace(_ENGINE, search=search), _MODEL.vocab_size
    )
    with self.assertRaisesRegex(ValueError, message):
      checks.request(request_lib.Request(np.ones(2, np.int32), **choices))


if __name__ == '__main__':
  absltest.main()
