"""Pax's beam search as a pure function.

The rule is that of praxis 1.4.0, `praxis.beam_search`. The score of a beam is
its sum of log-probabilities. A step does the following for each group of K
beams:

1. Every beam, extended by the likeliest stop id, is offered as a hypothesis.
Its
   score is sum / ((length + 5) / 5)**alpha. The best K hypotheses ever offered
   are kept. If scores are equal, the older one is kept.
2. The `tokens_per_beam` likeliest next tokens of each beam are candidates. If a
   stop id is one of them, that candidate is lost. The best K candidates run on.
3. The search continues to the limit. Beams that have not ended there are
   dropped.

With `early_exit` a stop id is a candidate like any other token. A beam that
takes a stop id counts as done, but it runs on and may end again. The search
ends when all beams are done.

Tokens and scores equal those of praxis, with these exceptions:

- A group is finished as soon as nothing can change its hypotheses. Scores only
  fall. So the group is finished when its best beam cannot displace the worst of
  K hypotheses, even at the most favorable length.
- With `early_exit` praxis continues until all beams of the whole batch are
  done, so an answer depends on the other requests. Here each group behaves like
  a batch of one.
- If there are fewer than K hypotheses, praxis adds beams that have not ended.
  Their last token becomes id 0, and their score is near -1e9. This module
  returns fewer hypotheses instead.
- If the minimum is the limit or above, no beam can end. Then this module
  returns the running beams as hypotheses, complete and with their true scores.
- The powers of lengths are computed in float64 and rounded once. Scores may
  differ from those of praxis in the last bit.
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
  """Returns the divisors of sums of log-probabilities, in float64."""
  return ((np.asarray(length, np.float64) + 5) / 5) ** alpha


@dataclasses.dataclass(frozen=True)
class PaxRule(rule.Rule):
  """The rule of Pax's beam search, with settings of `config.EngineConfig`."""

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
    """Chooses the next tokens; see `rule.Rule`."""
    del live
    slots, _, vocab = logits.shape
    k = self.num_rows
    options = state.options
    unused = search.unused(options, k)
    width = min(self.tokens_per_beam or k, vocab)
    likeliest = search.likeliest(state, logits, width)

    log_probs = (likeliest.logits - likeliest.peak) - likeliest.log_total
    sums = log_probs + state.scores[:, :, None]
    if self.tokens_per_beam is None:  # The default is the number of beams.
      beyond = jnp.arange(width) >= options.rows[:, None]
      sums = search.without(beyond[:, None], sums)

    def per_beam(x: jax.Array) -> jax.Array:
      # After the prompt all beams share one row of logits.
      return jnp.broadcast_to(x, sums.shape).reshape(slots, k * width)

    tokens = per_beam(likeliest.tokens)
    flat = per_beam(sums)
    if not self.early_exit:
      flat += search.is_stop(options, tokens) * search.NEVER
    scores, pick = jax.lax.top_k(flat, k)
    chosen = trace_lib.Chosen(
      search.take(tokens, pick),
      pick // width,
      search.take(per_beam(log_probs), pick),
    )

    ends, stops = _likeliest_stop(state, logits)
    ends = ((ends[..., None] - likeliest.peak) - likeliest.log_total)[..., 0]
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
    """Returns [S] bool: True if no running beam can change the hypotheses.

    Sums only fall. A beam cannot displace the worst hypothesis if its sum,
    divided by the largest divisor still to come, is below the score of that
    hypothesis.
    """
    options, best = state.options, state.scores[:, 0]
    # Divisors rise with the length if alpha is positive, and fall if it is
    # negative.
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
  """Returns the logits and the ids of the likeliest stop ids, [S, R] each.

  The logit of an excluded stop id is -inf.
  """
  ids = state.options.stop_ids[:, None]
  # If no id is excluded, this matches only the padding of the stop ids.
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
  """Returns the best of the kept hypotheses and of the beams that end now.

  Args:
    state: The state before the step.
    ends: The log-probabilities of the stop ids, [S, K or 1]; -inf if excluded.
    stops: The stop ids, [S, K or 1].
    unused: True for beams that the group does not use, [S, K] bool.
  """
  k = unused.shape[1]
  length = state.step + 1
  sums = state.scores + ends
  offered = sums > _LOST

  def per_beam(x: jax.Array) -> jax.Array:
    return jnp.broadcast_to(x, offered.shape)

  new = trace_lib.Kept(
    present=offered,
    scores=jnp.where(
      offered, sums / search.norm_at(state.options, length), search.NEVER
    ),
    lengths=per_beam(length[:, None]),
    last=per_beam(stops),
    logprobs=per_beam(ends),
    rows=per_beam(jnp.arange(k, dtype=jnp.int32)),
  )
  return search.keep_best(state.kept, new, unused)


def _running(state: search.State, chosen: trace_lib.Chosen) -> trace_lib.Kept:
  """Returns the running beams as hypotheses.

  Args:
    state: The state after the step, except for `step`.
    chosen: The choices of the running beams in this step.
  """
  length = state.step + 1
  return trace_lib.Kept(
    present=state.scores > _LOST,
    scores=state.scores / search.norm_at(state.options, length),
    lengths=jnp.broadcast_to(length[:, None], state.scores.shape),
    last=chosen.tokens,
    logprobs=chosen.logprobs,
    rows=chosen.parents,
  )
