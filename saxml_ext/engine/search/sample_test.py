"""Tests sampling by the frequencies of many draws."""

import dataclasses
import functools
import itertools
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import jax
import jax.numpy as jnp
import numpy as np

from saxml_ext.engine.kernels import kernels
from saxml_ext.engine.search import sample
from saxml_ext.engine.search import search
from saxml_ext.engine.search.testing import paths

_VOCAB = 24
_ROWS = 4000
_EOS = 3


def _options(slots=1, rows=_ROWS, **changes):
  changes = {'seed': 5, 'max_new': 4, 'rows': rows, **changes}
  options = search.options_like(slots, 1, 4)
  return dataclasses.replace(
    options,
    **{
      name: jnp.broadcast_to(
        jnp.asarray(value, getattr(options, name).dtype),
        getattr(options, name).shape,
      )
      for name, value in changes.items()
    },
  )


@functools.partial(jax.jit, static_argnums=0)
def _advance(rule, state, logits):
  """Advances a search; equal rules share a program."""
  return rule.advance(state, logits)


def _first_tokens(rule, options, logits, advance=None):
  """Returns tokens [S, K] drawn from logits [S, V]."""
  state = rule.initial(options, 4)
  advance = advance or functools.partial(_advance, rule)
  state, _ = advance(state, jnp.asarray(logits)[:, None])
  return np.asarray(state.last), state


def _expected(logits, temperature, top_k, top_p):
  """Returns the expected probabilities [V], computed by sorting."""
  p = np.exp(logits.astype(np.float64))
  if not temperature:
    return (p == p.max()).astype(np.float64)
  order = np.argsort(-p)
  if top_k:
    p[order[top_k:]] = 0
  p /= p.sum()
  before = np.cumsum(p[order]) - p[order]
  p[order[before > top_p]] = 0
  p **= 1 / temperature  # Applies to the remaining tokens.
  return p / p.sum()


class SampleTest(parameterized.TestCase):
  @parameterized.product(
    temperature=[0.5, 1.0, 2.0],
    choice=[(0, 0, 1.0), (0, 0, 0.7), (8, 0, 1.0), (8, 3, 1.0), (8, 5, 0.6)],
  )
  def test_frequencies(self, temperature, choice):
    max_top_k, top_k, top_p = choice
    logits = np.random.default_rng(0).normal(0, 1.5, _VOCAB)
    tokens, state = _first_tokens(
      sample.SampleRule(_ROWS, max_top_k),
      _options(temperature=temperature, top_k=top_k, top_p=top_p),
      logits[None].astype(np.float32),
    )
    counts = np.bincount(tokens[0], minlength=_VOCAB)
    expected = _expected(logits, temperature, top_k or max_top_k, top_p)
    self.assertEqual(counts[expected == 0].sum(), 0)
    # The slack is five standard deviations of a binomial count.
    slack = 5 * np.sqrt(_ROWS * expected * (1 - expected)) + 1
    np.testing.assert_array_less(np.abs(counts - _ROWS * expected), slack)
    # Scores are log-probabilities of the model's own distribution.
    log_probs = np.asarray(jax.nn.log_softmax(jnp.asarray(logits)))
    np.testing.assert_allclose(state.scores[0], log_probs[tokens[0]], atol=1e-5)

  @parameterized.parameters(True, False)
  def test_requests_of_one_batch_draw_from_any_number_of_tokens(self, kernel):
    vocab, rows = 300, 400
    choices = list(
      itertools.product(
        (0, 1, 7, 50, 100, vocab, 2**31 - 1),
        (1.0, 0.9, 0.6, 1e-6),
        (0.0, 0.5, 1.0, 2.0),
      )
    )
    columns = [list(column) for column in zip(*choices)]
    options = dict(zip(('top_k', 'top_p', 'temperature'), columns))
    seeds = list(range(len(choices)))
    logits = np.random.default_rng(4).normal(0, 2, (len(choices), vocab))
    logits = logits.astype(np.float32)
    with mock.patch.object(kernels, 'usable', return_value=kernel):
      rule = sample.SampleRule(rows, 40, whole=True)
      tokens, state = _first_tokens(
        rule,
        _options(len(choices), rows, seed=seeds, **options),
        logits,
        jax.jit(rule.advance),  # It is traced with the patch.
      )
    log_probs = np.asarray(jax.nn.log_softmax(jnp.asarray(logits)))
    np.testing.assert_allclose(
      state.scores, np.take_along_axis(log_probs, tokens, 1), atol=2e-5
    )
    for i, (top_k, top_p, temperature) in enumerate(choices):
      expected = _expected(logits[i], temperature, max(0, top_k), top_p)
      counts = np.bincount(tokens[i], minlength=vocab)
      self.assertEqual(counts[expected == 0].sum(), 0, choices[i])
      # Neighbors in the order of probability are counted together, because
      # single tokens are rare. The slack is five standard deviations.
      order = np.argsort(-expected, kind='stable')
      for part in np.split(order, [1, 3, 7, 20, 41, 50, 80, 150]):
        mean = rows * expected[part].sum()
        slack = 5 * np.sqrt(max(0, mean * (1 - mean / rows))) + 1
        self.assertLess(abs(counts[part].sum() - mean), slack, choices[i])

  def test_a_request_draws_the_same_alone_and_beside_others(self):
    vocab, most = 200, 5
    logits = np.random.default_rng(5).normal(0, 2, (4, 1, vocab))
    logits = jnp.asarray(logits, jnp.float32)
    rule = sample.SampleRule(most, 40, whole=True)
    options = dict(
      seed=[1, 2, 3, 4],
      temperature=[1.0, 2.0, 0.0, 1.5],
      top_k=[0, 100, 0, 30],
      top_p=[0.95, 1.0, 1.0, 1.0],
      rows=[5, 2, 5, 5],
    )
    state = rule.initial(_options(4, **options), 4)
    together, _ = _advance(rule, state, logits)
    for i in range(4):
      own = {name: values[i] for name, values in options.items()}
      state = rule.initial(_options(1, **own), 4)
      alone, _ = _advance(rule, state, logits[i : i + 1])
      used = own['rows']
      np.testing.assert_array_equal(
        alone.last[0, :used], together.last[i, :used]
      )
      np.testing.assert_array_equal(
        alone.scores[0, :used], together.scores[i, :used]
      )

  def test_a_small_top_k_draws_the_same_with_and_without_larger_ones(self):
    logits = np.random.default_rng(6).normal(0, 2, (2, 60)).astype(np.float32)
    options = _options(2, temperature=1.0, top_k=[5, 40], top_p=0.9)
    expected, _ = _first_tokens(sample.SampleRule(_ROWS, 40), options, logits)
    got, _ = _first_tokens(
      sample.SampleRule(_ROWS, 40, whole=True), options, logits
    )
    np.testing.assert_array_equal(got, expected)

  def test_the_rare_tokens_of_a_sharp_distribution_are_limited(self):
    # The 50 likeliest tokens after the first have a probability of 1e-9 each,
    # the others one of 1e-10. A high temperature makes them likely.
    logits = np.full((1, 5000), -23.0, np.float32)
    logits[0, 100:150] = -20.7
    logits[0, 7] = 0
    tokens, _ = _first_tokens(
      sample.SampleRule(500, 40, whole=True),
      _options(rows=500, temperature=20.0, top_k=51),
      logits,
    )
    self.assertContainsSubset(set(tokens[0]), {7, *range(100, 150)})
    self.assertGreater(len(set(tokens[0])), 40)

  @parameterized.parameters(0, 8)
  def test_zero_temperature_is_greedy_beside_others(self, max_top_k):
    logits = np.random.default_rng(1).normal(0, 1, (3, _VOCAB))
    logits = logits.astype(np.float32)
    tokens, _ = _first_tokens(
      sample.SampleRule(50, max_top_k),
      _options(3, temperature=[0.0, 1.0, 1e-42], seed=[1, 2, 3]),
      logits,
    )
    for row in (0, 2):
      self.assertEqual(set(tokens[row]), {logits[row].argmax()})
    self.assertGreater(len(set(tokens[1])), 3)

  def test_rows_end_one_by_one(self):
    rule = sample.SampleRule(2)
    state = rule.initial(_options(stop_ids=_EOS, min_new=1), 4)
    certain = [(5, 6), (_EOS, 7), (8, 9), (1, _EOS)]
    for step, pair in enumerate(certain):
      logits = np.full((1, 2, _VOCAB), -50, np.float32)
      logits[0, [0, 1], pair] = 50
      self.assertFalse(bool(state.finished[0]), step)
      state, rows = _advance(rule, state, jnp.asarray(logits))
      np.testing.assert_array_equal(rows, [[0, 1]])
    self.assertTrue(bool(state.finished[0]))
    (first, _), (second, score) = paths.kept(state, 0)
    self.assertEqual(first.tokens.tolist(), [5, _EOS])
    self.assertEqual(second.tokens.tolist(), [6, 7, 9, _EOS])
    self.assertAlmostEqual(second.logprobs.sum(), score, places=4)

  def test_a_request_may_want_fewer_samples(self):
    logits = np.random.default_rng(2).normal(0, 1, (1, 1, _VOCAB))
    logits = jnp.asarray(logits, jnp.float32)
    rule = sample.SampleRule(5)
    options = _options(rows=2, max_new=2, temperature=1.0)
    state = rule.initial(options, 4)
    wide = sample.SampleRule(5).initial(
      _options(rows=5, max_new=2, temperature=1.0), 4
    )
    for _ in range(2):
      state, _ = _advance(rule, state, logits)
      wide, _ = _advance(rule, wide, logits)
    self.assertTrue(bool(state.finished[0]))
    few, many = paths.kept(state, 0), paths.kept(wide, 0)
    self.assertLen(few, 2)
    self.assertLen(many, 5)
    for (a, _), (b, _) in zip(few, many):
      np.testing.assert_array_equal(a.tokens, b.tokens)

  @parameterized.parameters(0, 3, 20, 100)
  def test_stop_ids_are_barred_before_the_minimum(self, top_k):
    rule = sample.SampleRule(3, 10, whole=True)
    logits = np.zeros((1, 1, _VOCAB), np.float32)
    logits[..., _EOS] = 50
    state, _ = _advance(
      rule,
      rule.initial(
        _options(stop_ids=_EOS, min_new=1, temperature=1.0, top_k=top_k), 4
      ),
      jnp.asarray(logits),
    )
    self.assertNotIn(_EOS, state.last[0])
    self.assertFalse(state.kept.present.any())

  @parameterized.product(max_top_k=[0, 6], temperature=[0.0, 1.0])
  def test_the_likeliest_tokens_suffice(self, max_top_k, temperature):
    rule = sample.SampleRule(4, max_top_k, max_logprobs=3)
    logits = np.random.default_rng(3).normal(0, 2, (2, 4, _VOCAB))
    logits[..., _EOS] = 9  # The likeliest token, which may not be chosen yet.
    logits = jnp.asarray(logits, jnp.float32)
    calls = []

    def every():
      calls.append(1)
      return logits

    options = _options(
      2,
      4,
      stop_ids=_EOS,
      min_new=[2, 0],
      temperature=temperature,
      alternatives=True,
    )
    state = rule.initial(options, 4)
    expected, _ = rule.advance(state, logits)
    count = min(rule.known_tokens(options.stop_ids.shape[1]), _VOCAB)
    peak, total = search.log_total(logits)
    head = search.Head(
      logits.shape,
      every,
      None,
      search.Likeliest(peak, total, *jax.lax.top_k(logits, count)),
    )
    got, _ = rule.advance(state, head)
    # The tolerance is four units in the last place of the logits.
    jax.tree.map(
      lambda a, b: np.testing.assert_allclose(a, b, atol=4e-6), got, expected
    )
    # All logits are needed only to draw from the whole vocabulary.
    self.assertLen(calls, 0 if max_top_k else 1)


if __name__ == '__main__':
  absltest.main()
