"""Tests that streamed tokens stay valid, over random searches."""

import dataclasses

from absl.testing import absltest
from absl.testing import parameterized
import jax
import jax.numpy as jnp
import numpy as np

from saxml_ext.engine.search import beam
from saxml_ext.engine.search import pax_beam
from saxml_ext.engine.search import sample
from saxml_ext.engine.search import search
from saxml_ext.engine.search import streams
from saxml_ext.engine.search.testing import paths

_VOCAB = 19
_EOS = 3
_MOST = 16
_GROUPS = 40
_ROWS = 4


def _options(norm, early_stopping='never'):
  """Returns options of groups with one to four rows and different limits."""
  rng = np.random.default_rng(1)
  options = search.options_like(_GROUPS, 1, _MOST, _ROWS)
  return dataclasses.replace(
    options,
    stop_ids=jnp.full_like(options.stop_ids, _EOS),
    min_new=jnp.asarray(rng.integers(0, 4, _GROUPS), jnp.int32),
    max_new=jnp.asarray(rng.integers(4, _MOST + 1, _GROUPS), jnp.int32),
    rows=jnp.asarray(rng.integers(1, _ROWS + 1, _GROUPS), jnp.int32),
    norms=jnp.broadcast_to(
      jnp.asarray(norm(np.arange(_MOST + 1)), jnp.float32), options.norms.shape
    ),
    early_stopping=jnp.full_like(
      options.early_stopping, search.EARLY_STOPPING[early_stopping]
    ),
    temperature=jnp.ones(_GROUPS),
    seed=jnp.arange(_GROUPS, dtype=jnp.uint32),
  )


def _reference(penalty):
  return lambda length: beam.length_norm(length, penalty)


def _pax(alpha):
  return lambda length: pax_beam.length_norm(length, alpha)


def _follow(rule, options, interval):
  """Returns the reports of the streams of all groups, and the last state."""
  table = np.random.default_rng(0).normal(
    0, 2.5, (_GROUPS, _MOST, _VOCAB + 1, _VOCAB)
  )
  table[..., _EOS] += 1
  table = table.astype(np.float32)
  advance = jax.jit(rule.advance)
  report = jax.jit(streams.progress, static_argnums=1)
  state = rule.initial(options, _MOST)
  followed = [
    streams.Stream(int(rows), isinstance(rule, sample.SampleRule))
    for rows in options.rows
  ]
  reported = [[] for _ in followed]
  for step in range(_MOST):
    last = np.full((_GROUPS, _ROWS), _VOCAB)
    if step:
      last = np.asarray(state.last)
    logits = table[np.arange(_GROUPS)[:, None], step, last]
    new, _ = advance(state, jnp.asarray(logits[:, : None if step else 1]))
    state = search.freeze(~state.finished, new, state)
    if step % interval:
      continue
    progress = jax.device_get(report(state, interval))
    for group in np.flatnonzero(~np.asarray(state.finished)):
      followed[group].update(jax.tree.map(lambda x: x[group], progress))
      reported[group].append(followed[group].paths())
  return reported, state


class StreamsTest(parameterized.TestCase):
  @parameterized.parameters(
    (beam.BeamRule, _reference(1.0), True),
    (beam.BeamRule, _reference(1.0), False),
    (beam.BeamRule, _reference(2.0), 'never', 3),
    (beam.BeamRule, _reference(-0.5), False),
    (pax_beam.PaxRule, _pax(0.8)),
    (pax_beam.PaxRule, _pax(-1.0), False, 3),
    (pax_beam.PaxRule, _pax(0.0)),
    (lambda k: pax_beam.PaxRule(k, early_exit=True), _pax(0.8)),
  )
  def test_best_answer_begins_with_the_reported_tokens(
    self, rule, norm, early_stopping=False, interval=1
  ):
    rule = rule(_ROWS)
    reported, state = _follow(rule, _options(norm, early_stopping), interval)
    early = 0
    for group in range(_GROUPS):
      answers = paths.kept(state, group)
      best = max(answers, key=lambda answer: answer[1])[0]
      length = 0
      for ((path, finished),) in reported[group]:
        count = len(path.tokens)
        self.assertGreaterEqual(count, length)  # It never shrinks.
        self.assertFalse(finished)
        np.testing.assert_array_equal(path.tokens, best.tokens[:count])
        np.testing.assert_array_equal(path.logprobs, best.logprobs[:count])
        length = count
      early += length
    self.assertGreater(early, _GROUPS)  # Some tokens are reported early.

  def test_samples_are_reported_token_by_token(self):
    options = _options(np.ones_like)
    reported, state = _follow(sample.SampleRule(_ROWS), options, 1)
    for group, rows in enumerate(np.asarray(options.rows)):
      final = paths.kept(state, group)
      self.assertLen(final, rows)
      for step, samples in enumerate(reported[group], 1):
        self.assertLen(samples, rows)
        for (path, finished), (answer, _) in zip(samples, final):
          count = min(step, len(answer.tokens))
          np.testing.assert_array_equal(path.tokens, answer.tokens[:count])
          np.testing.assert_array_equal(path.logprobs, answer.logprobs[:count])
          self.assertEqual(finished, step >= len(answer.tokens))

  def test_progress_that_skips_steps_is_refused(self):
    stream = streams.Stream(1, sampled=True)
    rule = sample.SampleRule(_ROWS)
    state = rule.initial(_options(np.ones_like), _MOST)
    for _ in range(3):
      state, _ = rule.advance(state, jnp.zeros((_GROUPS, _ROWS, _VOCAB)))
    progress = jax.tree.map(lambda x: x[0], streams.progress(state, 2))
    with self.assertRaisesRegex(ValueError, '0 to 1 of a stream'):
      stream.update(progress)


if __name__ == '__main__':
  absltest.main()
