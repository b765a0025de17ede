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

import jax
import jax.numpy as jnp
import numpy as np

from saxml_ext.engine.search import candidates
from saxml_ext.engine.search import rule
from saxml_ext.engine.search import search
from saxml_ext.engine.search import trace as trace_lib

_NEVER = search.NEVER


def length_norm(length: np.ndarray, penalty: float) -> np.ndarray:
  """What a sum of log-probabilities is divided by; float64.

  Args:
    length: any number of them; 0 is not one, and counts as 1.
    penalty: the request's length_penalty.
  """
  return np.maximum(np.asarray(length, np.float64), 1) ** penalty


@dataclasses.dataclass(frozen=True)
class BeamRule(rule.Rule):
  """The search of groups with num_rows beams, or fewer."""

  def initial(self, options: search.Options, max_tokens: int) -> search.State:
    """As `rule.Rule`; all but the first beam start out of reach."""
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
    """[S] bool: the groups whose answers are these, after `length` tokens."""
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
    """The best continuations of the beams in use, [S, count] each.

    Returns:
      Sums, -inf of those that a narrower group does not look at; beams; tokens;
      the tokens' log-probabilities.
    """
    per_beam = max(2, 1 + state.options.stop_ids.shape[1])
    active = jnp.minimum(state.options.rows, logits.shape[1])
    found = candidates.find(state, logits, per_beam * self.num_rows, active)
    ranks = jnp.arange(found.sums.shape[1])
    beyond = ranks >= per_beam * state.options.rows[:, None]
    sums = search.without(beyond, found.sums)
    return sums, found.rows, found.tokens, found.log_probs
