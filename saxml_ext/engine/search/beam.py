"""The reference's beam search as a pure function.

The rule is that of transformers' GenerationMixin with num_beams > 1, which the
reference uses. A step does the following for each group of K beams:

1. The K * V continuations are ranked by their sums of log-probabilities. The
   best 2K are candidates, or the best (1 + E) K if there are E > 1 stop ids.
2. A candidate has ended if its token is a stop id, or if its length has reached
   the request's limit. The best K candidates that have not ended run on.
3. Those of the first K candidates that have ended become hypotheses. Their
score
   is sum / length**length_penalty. The best K hypotheses so far are kept.
4. The group is finished at the limit, when K hypotheses are kept
   (early_stopping), or when no running beam can beat the worst kept hypothesis.

K is the number of beams of the request. The group has as many rows as the
engine. The rows after the first K are out of reach and have no effect.
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from saxml_ext.engine.kernels import candidates as candidates_lib
from saxml_ext.engine.kernels import kernels
from saxml_ext.engine.search import rule
from saxml_ext.engine.search import search
from saxml_ext.engine.search import trace as trace_lib

_NEVER = search.NEVER


def length_norm(length: np.ndarray, penalty: float) -> np.ndarray:
  """Returns the divisors of sums of log-probabilities, in float64.

  Args:
    length: The lengths, of any shape. A length of 0 counts as 1.
    penalty: The request's length_penalty.
  """
  return np.maximum(np.asarray(length, np.float64), 1) ** penalty


class Candidates(NamedTuple):
  """The best continuations of each group's rows, best first.

  If sums are equal, the lower row comes first. Within a row the larger logit
  comes first, and then the lower token.

  Attributes:
    sums: The scores of the rows plus the log-probabilities of the tokens, [S,
      C] float32.
    log_probs: The log-probabilities of the tokens, [S, C] float32.
    rows: The rows that the tokens continue, [S, C] int32.
    tokens: The tokens, [S, C] int32.
    peak: The largest logit of each row, [S, R, 1]. See `search.log_total`.
    log_total: The logarithm of the total over all tokens, [S, R, 1]. See
      `search.log_total`.
  """

  sums: jax.Array
  log_probs: jax.Array
  rows: jax.Array
  tokens: jax.Array
  peak: jax.Array
  log_total: jax.Array


def find_candidates(
  state: search.State,
  logits: jax.Array,
  count: int,
  active: jax.Array | None = None,
) -> Candidates:
  """Returns the `count` best continuations, or all if there are fewer.

  The result is the best C continuations of all K rows together. The best C of
  each row would be K times as many, and wide beams never read most of them.

  Args:
    state: The state before the step. Its stop ids are excluded as in
      `search.barred`.
    logits: The logits of the first R rows, [S, R, V] float32.
    count: The number of continuations to return.
    active: The number of rows that each group continues, [S] int32. None stands
      for all R rows.
  """
  slots, rows, vocab = logits.shape
  scores = state.scores[:, :rows]
  if active is None:
    active = jnp.full((slots,), rows, jnp.int32)
  count = min(count, rows * vocab)

  def by_xla(logits: jax.Array) -> Candidates:
    width = min(count, vocab)
    best, tokens = search.top_k(
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
    peak, total, sums, log_probs, beams, tokens = (
      candidates_lib.find_candidates(
        logits, scores, search.barred(state), active, count
      )
    )
    return Candidates(
      sums, log_probs, beams, tokens, peak[..., None], total[..., None]
    )

  return kernels.choose(by_kernel, by_xla, logits)


@dataclasses.dataclass(frozen=True)
class BeamRule(rule.Rule):
  """The rule of a beam search for groups with at most num_rows beams."""

  def initial(self, options: search.Options, max_tokens: int) -> search.State:
    """Returns the first state: all but the first beam start out of reach."""
    state = super().initial(options, max_tokens)
    never = jnp.full_like(state.scores, _NEVER).at[:, 0].set(0.0)
    never = search.without(search.unused(options, self.num_rows), never)
    return dataclasses.replace(state, scores=never)

  def choose(
    self, state: search.State, logits: jax.Array, live: jax.Array
  ) -> tuple[search.State, trace_lib.Chosen]:
    """Chooses the next tokens; see `rule.Rule`."""
    del live
    k = self.num_rows
    options = state.options
    unused = search.unused(options, k)
    sums, beams, tokens, log_probs = self._candidates(state, logits)
    length = state.step + 1
    ended = search.is_stop(options, tokens)
    ended |= (length >= options.max_new)[:, None]

    scores, pick = jax.lax.top_k(sums + ended * _NEVER, k)
    scores = search.without(unused, scores)
    chosen = trace_lib.Chosen(
      *(search.take(x, pick) for x in (tokens, beams, log_probs))
    )
    offered = ended[:, :k] & ~unused
    new = sums[:, :k] / search.norm_at(options, length) + ~offered * _NEVER
    kept = search.keep_best(
      state.kept,
      trace_lib.Kept(
        present=offered,
        scores=new,
        lengths=jnp.broadcast_to(length[:, None], offered.shape),
        last=tokens[:, :k],
        logprobs=log_probs[:, :k],
        rows=beams[:, :k],
      ),
      unused,
    )
    finished = self._finished(options, length, scores, kept, unused)
    new_state = dataclasses.replace(
      state, scores=scores, kept=kept, finished=finished
    )
    return new_state, chosen

  def _finished(
    self,
    options: search.Options,
    length: jax.Array,
    scores: jax.Array,
    kept: trace_lib.Kept,
    unused: jax.Array,
  ) -> jax.Array:
    """Returns [S] bool: True for groups that are finished at `length`."""
    stopping = options.early_stopping
    worst = jnp.where(unused, jnp.inf, kept.scores).min(1, keepdims=True)
    worst = jnp.where(kept.present, worst, _NEVER)
    never = stopping == search.EARLY_STOPPING['never']
    hopeful = jnp.where(never, options.max_new, length)
    best = scores[:, :1] / search.norm_at(options, hopeful)
    finished = ~((best > worst) & ~unused).any(1) | (length >= options.max_new)
    at_count = stopping == search.EARLY_STOPPING[True]
    return finished | (at_count & (kept.present | unused).all(1))

  def _candidates(
    self, state: search.State, logits: jax.Array
  ) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Returns the best continuations of the beams in use, [S, count] each.

    Returns:
      The sums, the beams, the tokens, and the tokens' log-probabilities. The
      sum is -inf for candidates that a group with fewer beams does not
      consider.
    """
    per_beam = max(2, 1 + state.options.stop_ids.shape[1])
    active = jnp.minimum(state.options.rows, logits.shape[1])
    best = find_candidates(state, logits, per_beam * self.num_rows, active)
    ranks = jnp.arange(best.sums.shape[1])
    beyond = ranks >= per_beam * state.options.rows[:, None]
    sums = search.without(beyond, best.sums)
    return sums, best.rows, best.tokens, best.log_probs
