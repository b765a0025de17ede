"""Compares beam search with a simple implementation for a single group."""

import dataclasses

from absl.testing import absltest
from absl.testing import parameterized
import jax
import jax.numpy as jnp
import numpy as np

from saxml_ext.engine.search import beam
from saxml_ext.engine.search import search
from saxml_ext.engine.search.testing import paths

_VOCAB = 19
_EOS = 3


def _options(
  limits, stop_ids=((_EOS,),), rows=9, penalty=1.0, early_stopping=True
):
  """Returns options of groups with their own limits and stop ids."""
  min_new, max_new = (jnp.asarray(x, jnp.int32) for x in zip(*limits))
  most = int(max_new.max())
  options = search.options_like(len(limits), len(stop_ids[0]), most, rows)
  norms = beam.length_norm(np.arange(most + 1), penalty)
  if early_stopping == 'never' and penalty <= 0:
    early_stopping = False
  return dataclasses.replace(
    options,
    min_new=min_new,
    max_new=max_new,
    norms=jnp.broadcast_to(
      jnp.asarray(norms, jnp.float32), options.norms.shape
    ),
    early_stopping=jnp.full_like(
      options.early_stopping, search.EARLY_STOPPING[early_stopping]
    ),
    stop_ids=jnp.broadcast_to(
      jnp.asarray(stop_ids, jnp.int32), (len(limits), len(stop_ids[0]))
    ),
  )


def _log_softmax(x: np.ndarray) -> np.ndarray:
  x = x - x.max()
  return x - np.log(np.exp(x).sum())


def _plain_search(
  next_logits, k, penalty, early_stopping, min_new, max_new, stops=(_EOS,)
):
  """Returns the hypotheses (score, tokens), best first; uses only loops."""
  running = [(0.0, ())]
  hypotheses = []
  for length in range(1, max_new + 1):
    options = []
    for total, tokens in running:
      log_probs = _log_softmax(next_logits(tokens))
      for token, log_prob in enumerate(log_probs):
        if token not in stops or length > min_new:
          options.append((total + log_prob, tokens + (token,)))
    options.sort(key=lambda option: -option[0])
    running = []
    for rank, (total, tokens) in enumerate(options[: (1 + len(stops)) * k]):
      if tokens[-1] in stops or length == max_new:
        if rank < k:
          hypotheses.append((total / length**penalty, tokens))
      elif len(running) < k:
        running.append((total, tokens))
    hypotheses = sorted(hypotheses, key=lambda h: -h[0])[:k]
    if not running:
      break
    if len(hypotheses) == k:
      if early_stopping is True:
        break
      never = early_stopping == 'never' and penalty > 0
      hopeful = max_new if never else length
      best = running[0][0] / hopeful**penalty
      if best <= hypotheses[-1][0]:
        break
  return hypotheses


class BeamTest(parameterized.TestCase):
  @parameterized.parameters(
    (4, True, 1.0),
    (4, True, 2.0),
    (4, False, 1.0),
    (4, 'never', 1.0),
    (4, 'never', -0.5),
    (2, False, 0.0),
    (1, True, 1.0),
    (4, True, 1.0, (_EOS, 7, 11)),
    (2, 'never', 1.0, (_EOS, 7, 11), 5),
    (1, False, 1.0, (_EOS,), 3),
  )
  def test_equals_plain_search(
    self, num_beams, early_stopping, length_penalty, stops=(_EOS,), rows=None
  ):
    rule = beam.BeamRule(rows or num_beams)
    # The (min_new, max_new) of each group.
    limits = [(0, 12), (5, 12), (12, 12), (2, 3), (0, 1)] + 7 * [(0, 12)]
    most = max(m for _, m in limits)
    # The logits depend on the group, the step and the last token.
    table = (
      np.random.default_rng(0)
      .normal(0, 2, (len(limits), most, _VOCAB + 1, _VOCAB))
      .astype(np.float32)
    )
    state = rule.initial(
      _options(limits, (stops,), num_beams, length_penalty, early_stopping),
      most,
    )
    advance = jax.jit(rule.advance)
    for step in range(most):
      last = np.full((len(limits), rule.num_rows), _VOCAB)
      if step:
        last = np.asarray(state.last)
      logits = table[np.arange(len(limits))[:, None], step, last]
      if not step:
        logits = logits[:, :1]  # All beams are the same.
      new, parents = advance(state, jnp.asarray(logits))
      self.assertTrue(((parents >= 0) & (parents < rule.num_rows)).all())
      state = search.freeze(~state.finished, new, state)
    self.assertTrue(np.asarray(state.finished).all())
    for group, (min_new, max_new) in enumerate(limits):
      expected = _plain_search(
        lambda t: table[group, len(t), t[-1] if t else _VOCAB],
        num_beams,
        length_penalty,
        early_stopping,
        min_new,
        max_new,
        stops,
      )
      got = paths.kept(state, group)
      self.assertLen(got, len(expected))
      for (path, got_score), (score, tokens) in zip(got, expected):
        self.assertEqual(tuple(path.tokens.tolist()), tokens)
        self.assertAlmostEqual(got_score, score, places=4)
        before = [_VOCAB, *tokens[:-1]]
        log_probs = [
          _log_softmax(table[group, i, last])[token]
          for i, (last, token) in enumerate(zip(before, tokens))
        ]
        np.testing.assert_allclose(path.logprobs, log_probs, atol=1e-5)

  def test_bars_end_of_sequence_before_the_minimum(self):
    rule = beam.BeamRule(4)
    advance = jax.jit(rule.advance)
    logits = jnp.zeros((1, 4, _VOCAB)).at[:, :, _EOS].set(50.0)
    state = rule.initial(_options([(2, 9)]), 9)
    for _ in range(2):
      state, _ = advance(state, logits)
      self.assertFalse(np.asarray(state.kept.present).any())
    state, _ = advance(state, logits)
    self.assertTrue(np.asarray(state.kept.present)[0, 0])
    self.assertEqual(int(state.kept.lengths[0, 0]), 3)

  def test_end_of_sequence_outside_the_first_k_is_no_hypothesis(self):
    rule = beam.BeamRule(2)
    advance = jax.jit(rule.advance)
    logits = jnp.full((1, 2, _VOCAB), -9.0)
    logits = logits.at[:, :, jnp.asarray([5, 6, _EOS])].set(
      jnp.asarray([3.0, 2.0, 1.0])
    )
    state = rule.initial(_options([(0, 9)]), 9)
    state, _ = advance(state, logits)
    self.assertFalse(np.asarray(state.kept.present).any())
    np.testing.assert_array_equal(state.last[0], [5, 6])

  def test_beams_run_on_although_all_stop_ids_are_likelier(self):
    """Checks (1 + E) K candidates, up to E K of which may have ended."""
    rule = beam.BeamRule(2)
    advance = jax.jit(rule.advance)
    stops = (_EOS, 7, 11)
    logits = jnp.full((1, 2, _VOCAB), -9.0)
    logits = logits.at[:, :, jnp.asarray(stops)].set(9.0)
    logits = logits.at[:, :, jnp.asarray([5, 6])].set(jnp.asarray([3.0, 2.0]))
    state = rule.initial(_options([(0, 9)], (stops,), 2), 9)
    state, _ = advance(state, logits[:, :1])
    for expected in ([5, 6], [5, 6]):
      np.testing.assert_array_equal(state.last[0], expected)
      self.assertTrue((np.asarray(state.scores) > -100).all())
      state, parents = advance(state, logits)
    np.testing.assert_array_equal(parents, [[0, 0]])

  def test_ties_go_to_the_first_beam_and_the_lowest_token(self):
    rule = beam.BeamRule(2)
    advance = jax.jit(rule.advance)
    logits = jnp.zeros((1, 2, _VOCAB))
    state = rule.initial(_options([(9, 9)]), 9)
    state, _ = advance(state, logits[:, :1])
    np.testing.assert_array_equal(state.last[0], [0, 1])
    state, parents = advance(state, logits)
    np.testing.assert_array_equal(parents, [[0, 0]])
    np.testing.assert_array_equal(state.trace.tokens[0, :2], [[0, 1], [0, 1]])

  def test_older_of_equal_hypotheses_is_better(self):
    rule = beam.BeamRule(2)
    advance = jax.jit(rule.advance)
    logits = jnp.zeros((1, 2, _VOCAB))
    # Token 0 is a stop id and the likeliest token of the best beam in each
    # step.
    state = rule.initial(_options([(0, 9)], ((0,),)), 9)
    state, _ = advance(state, logits[:, :1])
    self.assertFalse(np.asarray(state.finished).any())
    state, _ = advance(state, logits)
    self.assertTrue(np.asarray(state.finished).all())
    first, second = np.asarray(state.kept.scores)[0]
    self.assertEqual(first, second)
    np.testing.assert_array_equal(state.kept.lengths, [[1, 2]])
    np.testing.assert_array_equal(paths.kept(state, 0)[1][0].tokens, [1, 0])

  def test_freeze_keeps_what_is_not_live(self):
    old = beam.BeamRule(2).initial(_options([(0, 5), (0, 5)]), 5)
    new = dataclasses.replace(old, step=old.step + 1, scores=old.scores - 7)
    mixed = search.freeze(jnp.asarray([True, False]), new, old)
    np.testing.assert_array_equal(mixed.step, [1, 0])
    np.testing.assert_array_equal(mixed.scores[1], old.scores[1])
    np.testing.assert_array_equal(mixed.scores[0], new.scores[0])


if __name__ == '__main__':
  absltest.main()
