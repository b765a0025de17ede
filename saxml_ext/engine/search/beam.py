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
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from saxml_ext.engine.search import search

_NEVER = search.NEVER


@dataclasses.dataclass(frozen=True)
class BeamRule:
  """The settings of a search; see `config.EngineConfig`."""

  num_beams: int
  length_penalty: float = 1.0
  early_stopping: bool | str = True

  def initial(self, options: search.Options, max_tokens: int) -> search.State:
    """As `search.Rule`; all but the first beam start out of reach."""
    state = search.initial(options, self.num_beams, max_tokens)
    never = jnp.full_like(state.scores, _NEVER)
    return dataclasses.replace(state, scores=never.at[:, 0].set(0.0))

  def advance(
    self, state: search.State, logits: jax.Array
  ) -> tuple[search.State, jax.Array]:
    """See `search.Rule`."""
    k = self.num_beams
    options = state.options
    sums, beams, tokens = self._candidates(state, logits)
    length = state.step + 1
    ended = search.is_stop(options, tokens)
    ended |= (length >= options.max_new)[:, None]

    scores, pick = jax.lax.top_k(sums + ended * _NEVER, k)
    parents = search.take(beams, pick)
    running = search.append(state, parents, search.take(tokens, pick))

    # Index 0 is not a length, and 0 has no negative powers.
    lengths = np.maximum(np.arange(state.tokens.shape[-1] + 1), 1)
    norm = jnp.asarray(self.length_norm(lengths), jnp.float32)
    new = sums[:, :k] / norm[length][:, None] + ~ended[:, :k] * _NEVER
    merged = jnp.concatenate([state.kept_scores, new], 1)
    kept_scores, pick = jax.lax.top_k(merged, k)

    def keep(old: jax.Array, new: jax.Array) -> jax.Array:
      return search.take(jnp.concatenate([old, new], 1), pick)

    kept = keep(state.kept, ended[:, :k])
    worst = jnp.where(kept, kept_scores.min(1, keepdims=True), _NEVER)
    hopeful = length
    if self.early_stopping == 'never' and self.length_penalty > 0:
      hopeful = options.max_new
    reach = scores[:, :1] / norm[hopeful][:, None]
    finished = ~(reach > worst).any(1) | (length >= options.max_new)
    if self.early_stopping is True:
      finished |= kept.all(1)
    new_tokens = search.append(state, beams[:, :k], tokens[:, :k])
    return (
      search.State(
        options=options,
        step=length,
        tokens=running,
        scores=scores,
        kept_tokens=keep(state.kept_tokens, new_tokens),
        kept_lengths=keep(
          state.kept_lengths,
          jnp.broadcast_to(length[:, None], (length.shape[0], k)),
        ),
        kept_scores=kept_scores,
        kept=kept,
        finished=finished,
      ),
      parents,
    )

  def _candidates(
    self, state: search.State, logits: jax.Array
  ) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The best continuations: sums, beams and tokens, each [S, count]."""
    count = max(2, 1 + state.options.stop_ids.shape[1]) * self.num_beams
    found = search.candidates(state, logits, count)
    return found.sums, found.rows, found.tokens

  def length_norm(self, length: np.ndarray) -> np.ndarray:
    """See `search.Rule`."""
    return np.asarray(length, np.float64) ** self.length_penalty
