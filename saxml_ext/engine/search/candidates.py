"""The best continuations of a group's rows together, as beam search wants them.

Of K rows the best C continuations are wanted, where a row's own best C would be
K times as many: with wide beams most of those are never looked at.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from saxml_ext.engine.kernels import kernels
from saxml_ext.engine.search import search
from saxml_ext.engine.search import topk


class Candidates(NamedTuple):
  """The best continuations of each group's rows, best first.

  sums [S, C] float32: scores of their rows and log-probabilities of their
  tokens; log_probs [S, C] float32: the latter alone; rows, tokens [S, C] int32.
  Of equal sums the lower row comes first, of one row the larger logit, of
  equal logits the lower token.
  peak, log_total: [S, R, 1], see `search.log_total`; of all tokens.
  """

  sums: jax.Array
  log_probs: jax.Array
  rows: jax.Array
  tokens: jax.Array
  peak: jax.Array
  log_total: jax.Array


def find(
  state: search.State,
  logits: jax.Array,
  count: int,
  active: jax.Array | None = None,
) -> Candidates:
  """The `count` best continuations, or all if there are fewer.

  Args:
    state: before the step; its stop ids are barred as of `search.barred`.
    logits: [S, R, V] float32 of the first R rows.
    count: of the continuations that are asked for.
    active: [S] int32, so many of the rows are continued; None: all R.
  """
  slots, rows, vocab = logits.shape
  scores = state.scores[:, :rows]
  if active is None:
    active = jnp.full((slots,), rows, jnp.int32)
  count = min(count, rows * vocab)

  def by_xla(logits: jax.Array) -> Candidates:
    width = min(count, vocab)
    best, tokens = topk.top_k(
      search.bar_stops(state, logits).reshape(slots * rows, vocab), width
    )
    best, tokens = (x.reshape(slots, rows, width) for x in (best, tokens))
    peak, total = search.log_total(logits)
    log_probs = (best - peak) - total
    continued = jnp.arange(rows) < active[:, None]
    sums = jnp.where(
      continued[..., None], log_probs + scores[..., None], -jnp.inf
    )
    sums, pick = jax.lax.top_k(sums.reshape(slots, -1), count)
    log_probs, tokens = (
      search.take(x.reshape(slots, -1), pick) for x in (log_probs, tokens)
    )
    return Candidates(sums, log_probs, pick // width, tokens, peak, total)

  def by_kernel(logits: jax.Array) -> Candidates:
    peak, total, sums, log_probs, beams, tokens = kernels.find_candidates(
      logits, scores, search.barred(state), active, count
    )
    return Candidates(
      sums, log_probs, beams, tokens, peak[..., None], total[..., None]
    )

  if not kernels.usable():
    return by_xla(logits)
  return jax.lax.platform_dependent(logits, cpu=by_kernel, default=by_xla)
