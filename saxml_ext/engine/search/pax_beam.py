"""Pax's beam search as one pure function.

The rule is that of praxis 1.4.0, `praxis.beam_search`. For each group of K
beams, at each step, a beam's score being its sum of log-probabilities:

1. Every beam offers itself, ended by the likeliest of the stop ids, as a
   hypothesis, scored sum / ((length + 5) / 5)**alpha. The best K ever offered
   are kept; of equals the older.
2. Of each beam the `tokens_per_beam` likeliest next tokens are candidates; a
   stop id may be one of them, and is then lost. The best K candidates run on.
3. The search goes on to the limit. What has not ended there is dropped.

With `early_exit` a stop id is a candidate like any other: a beam that took it
runs on, may take and offer it again, and counts as done; the search ends once
all beams are done.

Tokens and scores are praxis' own, with these exceptions:

- A group is finished as soon as nothing can change its hypotheses: scores only
  fall, so it is when the best beam, were it to end at the most favourable
  length, would not displace the worst of K hypotheses.
- With `early_exit` praxis goes on until all beams of the whole batch are done,
  so that an answer depends on the others. Here a group is as a batch of one.
- praxis fills up what is missing of K hypotheses with beams that have not
  ended, token id 0 in place of their last token, scored near -1e9. Here there
  are fewer hypotheses.
- Unless nothing could end at all, because the minimum is the limit or above:
  then the running beams are the hypotheses, whole and with their true scores.
- The powers of lengths are rounded once, from float64. Scores may differ from
  praxis' in their last bit.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from saxml_ext.engine.search import rule
from saxml_ext.engine.search import search
from saxml_ext.engine.search import trace as trace_lib

_LOST = search.LOST


def length_norm(length: np.ndarray, alpha: float) -> np.ndarray:
  """Returns the divisors of sums of log-probabilities; float64."""
  return ((np.asarray(length, np.float64) + 5) / 5) ** alpha


@dataclasses.dataclass(frozen=True)
class PaxRule(rule.Rule):
  """The settings of a search; see `config.EngineConfig`."""

  tokens_per_beam: int | None = None
  early_exit: bool = False

  def initial(self, options: search.Options, max_tokens: int) -> search.State:
    """Returns the first state: all but the first beam start out of reach."""
    state = super().initial(options, max_tokens)
    scores = jnp.arange(self.num_rows, dtype=jnp.float32) * search.NEVER
    scores = jnp.broadcast_to(scores, state.scores.shape)
    unused = search.unused(options, self.num_rows)
    return dataclasses.replace(state, scores=search.without(unused, scores))

  def choose(
    self, state: search.State, logits: jax.Array, live: jax.Array
  ) -> tuple[search.State, trace_lib.Chosen]:
    """See `rule.Rule`."""
    del live
    slots, _, vocab = logits.shape
    k = self.num_rows
    options = state.options
    unused = search.unused(options, k)
    width = min(self.tokens_per_beam or k, vocab)
    found = search.likeliest(state, logits, width)

    log_probs = (found.logits - found.peak) - found.log_total
    sums = log_probs + state.scores[:, :, None]
    if self.tokens_per_beam is None:  # As many as the group has beams.
      beyond = jnp.arange(width) >= options.rows[:, None]
      sums = search.without(beyond[:, None], sums)

    def each(x: jax.Array) -> jax.Array:
      # After the prompt all beams have the one row.
      return jnp.broadcast_to(x, sums.shape).reshape(slots, k * width)

    tokens = each(found.tokens)
    flat = each(sums)
    if not self.early_exit:
      flat += search.is_stop(options, tokens) * search.NEVER
    scores, pick = jax.lax.top_k(flat, k)
    chosen = trace_lib.Chosen(
      search.take(tokens, pick),
      pick // width,
      search.take(each(log_probs), pick),
    )

    ends, stops = _likeliest_stop(state, logits)
    ends = ((ends[..., None] - found.peak) - found.log_total)[..., 0]
    length = state.step + 1
    at_limit = length >= options.max_new
    kept = _keep_ended(state, ends, stops, unused)
    ended = state.ended
    if self.early_exit:
      ended = search.take(ended, chosen.parents)
      ended |= search.is_stop(options, chosen.tokens)
    state = dataclasses.replace(
      state, scores=search.without(unused, scores), ended=ended, kept=kept
    )
    finished = at_limit | self._settled(state, unused)
    if self.early_exit:
      finished |= (ended | unused).all(1)
    nothing = at_limit & ~kept.present.any(1)
    running = _running(state, chosen)
    kept = jax.tree.map(
      lambda a, b: jnp.where(nothing[:, None], a, b), running, kept
    )
    return dataclasses.replace(state, kept=kept, finished=finished), chosen

  def _settled(self, state: search.State, unused: jax.Array) -> jax.Array:
    """Returns [S] bool: no running beam can change the hypotheses any more.

    Sums only fall, so a beam whose score with the largest divisor still to come
    stays below the worst hypothesis will not displace it.
    """
    options, best = state.options, state.scores[:, 0]
    # Divisors rise or fall with the length, as the sign of alpha is.
    norm = jnp.maximum(
      search.norm_at(options, state.step + 2),
      search.norm_at(options, options.max_new),
    )
    worst = jnp.where(unused, jnp.inf, state.kept.scores).min(1)
    beaten = (state.kept.present | unused).all(1) & (best / norm[:, 0] <= worst)
    return beaten | (best < _LOST)


def _likeliest_stop(
  state: search.State, logits: jax.Array
) -> tuple[jax.Array, jax.Array]:
  """Returns the likeliest stop ids' logits, -inf if barred, and ids; [S, R]."""
  ids = state.options.stop_ids[:, None]
  # Where nothing is barred this is where there is no stop id.
  unfit = (search.barred(state) == state.options.stop_ids)[:, None]
  shape = (*logits.shape[:2], ids.shape[2])
  ids = jnp.broadcast_to(ids, shape)
  values = jnp.take_along_axis(logits, jnp.maximum(ids, 0), 2)
  values = jnp.where(unfit, -jnp.inf, values)
  best = values.argmax(2)[:, :, None]
  return values.max(2), jnp.take_along_axis(ids, best, 2)[:, :, 0]


def _keep_ended(
  state: search.State, ends: jax.Array, stops: jax.Array, unused: jax.Array
) -> trace_lib.Kept:
  """Returns the best of the hypotheses and of the beams, ended where they are.

  Args:
    state: before the step.
    ends: [S, K or 1], log-probabilities of the stop ids; -inf if barred.
    stops: [S, K or 1], the stop ids.
    unused: [S, K] bool, beams that there are not.
  """
  k = unused.shape[1]
  length = state.step + 1
  sums = state.scores + ends
  offered = sums > _LOST

  def each(x: jax.Array) -> jax.Array:
    return jnp.broadcast_to(x, offered.shape)

  new = trace_lib.Kept(
    present=offered,
    scores=jnp.where(
      offered, sums / search.norm_at(state.options, length), search.NEVER
    ),
    lengths=each(length[:, None]),
    last=each(stops),
    logprobs=each(ends),
    rows=each(jnp.arange(k, dtype=jnp.int32)),
  )
  return search.keep_best(state.kept, new, unused)


def _running(state: search.State, chosen: trace_lib.Chosen) -> trace_lib.Kept:
  """The running beams as hypotheses; state: after the step, less `step`."""
  length = state.step + 1
  return trace_lib.Kept(
    present=state.scores > _LOST,
    scores=state.scores / search.norm_at(state.options, length),
    lengths=jnp.broadcast_to(length[:, None], state.scores.shape),
    last=chosen.tokens,
    logprobs=chosen.logprobs,
    rows=chosen.parents,
  )
