"""Tests of answers read from a trace that is written by hand."""

from absl.testing import absltest
import jax
import jax.numpy as jnp
import numpy as np

from saxml_ext.engine.search import trace as trace_lib


class TraceTest(absltest.TestCase):
  def setUp(self):
    """Writes two rows that swap at the second step and diverge at the third."""
    super().setUp()
    trace = trace_lib.empty(slots=2, steps=4, rows=2, max_logprobs=1)
    steps = (
      ([10, 11], [0, 0], [[5], [5]]),
      ([20, 21], [1, 0], [[6], [7]]),
      ([30, 31], [1, 1], [[8], [9]]),
    )
    for step, (tokens, parents, ids) in enumerate(steps):
      chosen = trace_lib.Chosen(
        jnp.asarray([tokens, tokens]),
        jnp.asarray([parents, parents]),
        -jnp.asarray([tokens, tokens], jnp.float32),
      )
      top = jnp.asarray([ids, ids])
      # The second group is beyond its last step, so nothing is written for it.
      trace = trace_lib.write(
        trace, jnp.asarray([step, 4]), chosen, (top, -top.astype(jnp.float32))
      )
    self.trace = jax.tree.map(np.asarray, trace)
    self.one = jax.tree.map(lambda x: x[0], self.trace)

  def test_rows_lead_back_to_where_they_come_from(self):
    rows = trace_lib.rows_of(self.one.parents, last=2, row=0)
    self.assertEqual(rows, [0, 1, 0])
    self.assertEqual(trace_lib.rows_of(self.one.parents, 2, 1, first=1), [1, 1])
    self.assertEqual(trace_lib.rows_of(self.one.parents, -1, 0), [])

  def test_an_answer_has_its_last_token_from_what_was_kept(self):
    kept = trace_lib.Kept(
      present=np.asarray([True, True]),
      scores=np.zeros(2),
      lengths=np.asarray([3, 1]),
      last=np.asarray([99, 98]),
      logprobs=np.asarray([-0.5, -0.25], np.float32),
      rows=np.asarray([1, 0]),
    )
    long = trace_lib.path(self.one, kept, 0)
    np.testing.assert_array_equal(long.tokens, [10, 21, 99])
    np.testing.assert_array_equal(long.logprobs, [-10, -21, -0.5])
    # The alternatives are the likeliest tokens after the row that each token
    # continues.
    np.testing.assert_array_equal(long.alternatives[0], [[5], [6], [9]])
    short = trace_lib.path(self.one, kept, 1)
    np.testing.assert_array_equal(short.tokens, [98])
    np.testing.assert_array_equal(short.alternatives[0], [[5]])

  def test_nothing_is_written_beyond_the_last_step(self):
    np.testing.assert_array_equal(self.trace.tokens[1], np.zeros((4, 2)))


if __name__ == '__main__':
  absltest.main()
