"""The reference's beam search as one pure function.

The rule is that of transformers' GenerationMixin with num_beams > 1, which is
the reference's. For each group of K beams, at each step:

1. Of all K * V continuations those with the highest sum of log-probabilities
   are candidates: 2K, or (1 + E) K with E > 1 stop ids.
2. A candidate has ended if its token is a stop id, or if it is as long as the
   request allows. The best K that have not ended run on.
3. Of the first K candidates, those that have ended become hypotheses, scored
   sum / length**length_penalty; the best K hypotheses ever seen are kept.
4. The group is finished when K hypotheses are kept (early_stopping), when no
   running beam can become better than the worst of them, or at the limit.

K is the request's own: the group has as many rows as the engine's, of which
those beyond are out of reach, and change nothing.
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from saxml_ext.engine.kernels import kernels
from saxml_ext.engine.search import rule
from saxml_ext.engine.search import search
from saxml_ext.engine.search import trace as trace_lib

_NEVER = search.NEVER


def length_norm(length: np.ndarray, penalty: float) -> np.ndarray:
  """Returns the divisors of sums of log-probabilities; float64.

  Args:
    length: any number of them; 0 is not one, and counts as 1.
    penalty: the request's length_penalty.
  """
  return np.maximum(np.asarray(length, np.float64), 1) ** penalty


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


def find_candidates(
  state: search.State,
  logits: jax.Array,
  count: int,
  active: jax.Array | None = None,
) -> Candidates:
  """Returns the `count` best continuations, or all if there are fewer.

  Of K rows the best C continuations are wanted, where a row's own best C would
  be
  K times as many: with wide beams most of those are never looked at.

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
    peak, total, sums, log_probs, beams, tokens = kernels.find_candidates(
      logits, scores, search.barred(state), active, count
    )
    return Candidates(
      sums, log_probs, beams, tokens, peak[..., None], total[..., None]
    )

  return kernels.choose(by_kernel, by_xla, logits)


@dataclasses.dataclass(frozen=True)
class BeamRule(rule.Rule):
  """The search of groups with num_rows beams, or fewer."""

  def initial(self, options: search.Options, max_tokens: int) -> search.State:
    """Returns the first state: all but the first beam start out of reach."""
    state = super().initial(options, max_tokens)
    never = jnp.full_like(state.scores, _NEVER).at[:, 0].set(0.0)
    never = search.without(search.unused(options, self.num_rows), never)
    return dataclasses.replace(state, scores=never)

  def choose(
    self, state: search.State, logits: jax.Array, live: jax.Array
  ) -> tuple[search.State, trace_lib.Chosen]:
    """See `rule.Rule`."""
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
    """Returns the groups that have finished after `length` tokens, [S] bool."""
    stopping = options.early_stopping
    worst = jnp.where(unused, jnp.inf, kept.scores).min(1, keepdims=True)
    worst = jnp.where(kept.present, worst, _NEVER)
    never = stopping == search.EARLY_STOPPING['never']
    hopeful = jnp.where(never, options.max_new, length)
    reach = scores[:, :1] / search.norm_at(options, hopeful)
    finished = ~((reach > worst) & ~unused).any(1) | (length >= options.max_new)
    at_count = stopping == search.EARLY_STOPPING[True]
    return finished | (at_count & (kept.present | unused).all(1))

  def _candidates(
    self, state: search.State, logits: jax.Array
  ) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Returns the best continuations of the beams in use, [S, count] each.

    Returns:
      Sums, -inf of those that a narrower group does not look at; beams; tokens;
      the tokens' log-probabilities.
    """
    per_beam = max(2, 1 + state.options.stop_ids.shape[1])
    active = jnp.minimum(state.options.rows, logits.shape[1])
    found = find_candidates(state, logits, per_beam * self.num_rows, active)
    ranks = jnp.arange(found.sums.shape[1])
    beyond = ranks >= per_beam * state.options.rows[:, None]
    sums = search.without(beyond, found.sums)
    return sums, found.rows, found.tokens, found.log_probs
