"""Compares Pax's search with a simple one that always runs to the limit."""

import dataclasses

from absl.testing import absltest
from absl.testing import parameterized
import jax
import jax.numpy as jnp
import numpy as np

from saxml_ext.engine.search import pax_beam
from saxml_ext.engine.search import search
from saxml_ext.engine.search.testing import paths

_VOCAB = 19
_EOS = 3


def _options(limits, stops=(_EOS,), rows=9, alpha=0.8):
  """Returns options of groups with their own limits and shared stop ids."""
  min_new, max_new = (jnp.asarray(x, jnp.int32) for x in zip(*limits))
  most = int(max_new.max())
  options = search.options_like(len(limits), len(stops), most, rows)
  norms = pax_beam.length_norm(np.arange(most + 1), alpha)
  stop_ids = jnp.tile(jnp.asarray(stops, jnp.int32), (len(limits), 1))
  return dataclasses.replace(
    options,
    norms=jnp.broadcast_to(
      jnp.asarray(norms, jnp.float32), options.norms.shape
    ),
    min_new=min_new,
    max_new=max_new,
    stop_ids=stop_ids,
  )


def _log_softmax(x: np.ndarray) -> np.ndarray:
  x = x - x.max()
  return x - np.log(np.exp(x).sum())


def _plain_search(next_logits, rule, k, alpha, min_new, max_new, stops):
  """Returns the hypotheses (score, tokens), best first; uses only loops."""
  running, kept = [(0.0, ())], []
  for length in range(1, max_new + 1):
    norm = ((length + 5) / 5) ** alpha
    options = []
    for total, tokens in running:
      log_probs = _log_softmax(next_logits(tokens))
      if length > min_new:
        stop = max(stops, key=lambda token: log_probs[token])
        kept.append(((total + log_probs[stop]) / norm, tokens + (stop,)))
      else:
        log_probs[list(stops)] = -np.inf
      for token in np.argsort(-log_probs)[: rule.tokens_per_beam or k]:
        if token not in stops or rule.early_exit:
          options.append((total + log_probs[token], tokens + (int(token),)))
    kept = sorted(kept, key=lambda h: -h[0])[:k]
    running = sorted(options, key=lambda option: -option[0])[:k]
    if rule.early_exit and all(set(stops) & set(t) for _, t in running):
      break
  return kept or [(total / norm, tokens) for total, tokens in running]


def _search(rule, limits, table, stops=(_EOS,), rows=9, alpha=0.8):
  """Returns the state after all groups have finished."""
  most = max(m for _, m in limits)
  state = rule.initial(_options(limits, stops, rows, alpha), most)
  advance = jax.jit(rule.advance)
  for step in range(most):
    last = np.full((len(limits), rule.num_rows), _VOCAB)
    if step:
      last = np.asarray(state.last)
    logits = table[np.arange(len(limits))[:, None], step, last]
    if not step:
      logits = logits[:, :1]  # All beams are the same.
    new, parents = advance(state, jnp.asarray(logits))
    assert ((parents >= 0) & (parents < rule.num_rows)).all()
    state = search.freeze(~state.finished, new, state)
  return jax.device_get(state)


class PaxBeamTest(parameterized.TestCase):
  @parameterized.parameters(
    dict(num_beams=4),
    dict(num_beams=4, early_exit=True),
    dict(num_beams=4, length_norm_alpha=2.0),
    dict(num_beams=4, length_norm_alpha=-1.0),
    dict(num_beams=4, tokens_per_beam=2),
    dict(num_beams=3, tokens_per_beam=7),
    dict(num_beams=1),
    dict(num_beams=4, stops=(_EOS, 7, 11)),
    dict(num_beams=4, early_exit=True, stops=(_EOS, 7, search.NO_TOKEN)),
    # The groups have fewer beams than the engine has rows.
    dict(num_beams=2, rows=5),
    dict(num_beams=3, rows=4, early_exit=True, stops=(_EOS, 7)),
    dict(num_beams=2, rows=3, tokens_per_beam=4),
  )
  def test_equals_plain_search(
    self,
    num_beams,
    stops=(_EOS,),
    rows=None,
    length_norm_alpha=0.8,
    **settings,
  ):
    rule = pax_beam.PaxRule(rows or num_beams, **settings)
    # The (min_new, max_new) of each group.
    limits = [(0, 12), (5, 12), (12, 12), (13, 12), (2, 3), (0, 1)]
    limits += 10 * [(0, 12)]
    most = max(m for _, m in limits)
    # The logits depend on the group, the step and the last token.
    table = (
      np.random.default_rng(0)
      .normal(0, 2, (len(limits), most, _VOCAB + 1, _VOCAB))
      .astype(np.float32)
    )
    table[..., _EOS] += 3
    state = _search(rule, limits, table, stops, num_beams, length_norm_alpha)
    self.assertTrue(state.finished.all())
    for group, (min_new, max_new) in enumerate(limits):
      expected = _plain_search(
        lambda t: table[group, len(t), t[-1] if t else _VOCAB],
        rule,
        num_beams,
        length_norm_alpha,
        min_new,
        max_new,
        [stop for stop in stops if stop != search.NO_TOKEN],
      )
      got = paths.kept(state, group)
      self.assertLen(got, len(expected))
      for (path, got_score), (score, tokens) in zip(got, expected):
        self.assertEqual(tuple(path.tokens.tolist()), tokens)
        self.assertAlmostEqual(got_score, score, places=4)
        total = score * ((len(tokens) + 5) / 5) ** length_norm_alpha
        self.assertAlmostEqual(path.logprobs.sum(), total, places=4)
    if num_beams > 1:
      # At least one group that may end anywhere stops before the limit.
      # Otherwise the comparison with the simple search would not cover early
      # stops.
      self.assertLess(state.step[6:].min(), most)

  def test_goes_on_as_long_as_a_better_end_may_come(self):
    # The first hypotheses have low scores because an end was unlikely so far.
    rule = pax_beam.PaxRule(2)
    table = np.full((1, 9, _VOCAB + 1, _VOCAB), -20.0, np.float32)
    table[..., 5] = 0.0
    table[:, 8, :, _EOS] = 9.0
    state = _search(rule, [(0, 9)], table, alpha=1.0)
    self.assertEqual(state.step[0], 9)
    self.assertEqual(
      paths.kept(state, 0)[0][0].tokens.tolist(), 8 * [5] + [_EOS]
    )

  def test_end_of_sequence_outside_the_candidates_is_a_hypothesis(self):
    rule = pax_beam.PaxRule(2)
    logits = jnp.full((1, 1, _VOCAB), -9.0)
    logits = logits.at[:, :, jnp.asarray([5, 6, _EOS])].set(
      jnp.asarray([3.0, 2.0, 1.0])
    )
    state, _ = rule.advance(rule.initial(_options([(0, 9)]), 9), logits)
    np.testing.assert_array_equal(state.kept.present[0], [True, False])
    np.testing.assert_array_equal(state.last[0], [5, 6])

  def test_end_of_sequence_takes_the_place_of_a_candidate(self):
    rule = pax_beam.PaxRule(2)
    logits = jnp.full((1, 1, _VOCAB), -9.0)
    logits = logits.at[:, :, jnp.asarray([5, 6, _EOS])].set(
      jnp.asarray([3.0, 1.0, 2.0])
    )
    state, _ = rule.advance(rule.initial(_options([(0, 9)]), 9), logits)
    # Token 6 is the third choice of its beam: one beam runs on, the other is
    # lost.
    np.testing.assert_array_equal(state.last[0, 0], 5)
    np.testing.assert_array_equal(state.scores[0] > -1e8, [True, False])

  def test_running_beams_count_if_none_ends(self):
    rule = pax_beam.PaxRule(2)
    table = np.zeros((1, 3, _VOCAB + 1, _VOCAB), np.float32)
    table[..., _EOS] = 50.0
    table[..., 7] = 40.0
    state = _search(rule, [(3, 3)], table, alpha=1.0)
    self.assertTrue(state.kept.present.all())
    self.assertEqual(paths.kept(state, 0)[0][0].tokens.tolist(), [7, 7, 7])
    self.assertAlmostEqual(state.kept.scores[0, 0], -30 / 1.6, places=3)


if __name__ == '__main__':
  absltest.main()
