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

from saxml_ext.engine.search import search

# Below it a beam is out of reach: it never began, or took a stop id that was
# lost. Sums of log-probabilities stay far above.
_LOST = search.NEVER / 2


@dataclasses.dataclass(frozen=True)
class PaxRule:
  """The settings of a search; see `config.EngineConfig`."""

  num_beams: int
  length_norm_alpha: float = 0.8
  tokens_per_beam: int | None = None
  early_exit: bool = False

  def initial(self, options: search.Options, max_tokens: int) -> search.State:
    """As `search.Rule`; all but the first beam start out of reach."""
    state = search.initial(options, self.num_beams, max_tokens)
    order = jnp.arange(self.num_beams, dtype=jnp.float32)
    return dataclasses.replace(
      state, scores=jnp.broadcast_to(order * search.NEVER, state.scores.shape)
    )

  def advance(
    self, state: search.State, logits: jax.Array
  ) -> tuple[search.State, jax.Array]:
    """See `search.Rule`."""
    slots, rows, vocab = logits.shape
    k = self.num_beams
    width = min(self.tokens_per_beam or k, vocab)
    found = search.likeliest(state, logits, width)
    # Index 0 is not a length; it is never looked up.
    norm = self.length_norm(np.arange(state.tokens.shape[-1] + 1))
    norm = jnp.asarray(norm, jnp.float32)

    sums = (found.logits - found.peak) - found.log_total
    sums = sums + state.scores[:, :, None]
    # After the prompt all beams have the one row.
    tokens = jnp.broadcast_to(found.tokens, sums.shape)
    tokens = tokens.reshape(slots, k * width)
    sums = sums.reshape(slots, k * width)
    if not self.early_exit:
      sums += search.is_stop(state.options, tokens) * search.NEVER
    scores, pick = jax.lax.top_k(sums, k)
    parents = pick // width

    ends, stops = _likeliest_stop(state, logits)
    ends = ((ends[..., None] - found.peak) - found.log_total)[..., 0]
    ends = state.scores + ends
    state = _keep_ended(state, ends, stops, norm)
    state = dataclasses.replace(
      state,
      tokens=search.append(state, parents, search.take(tokens, pick)),
      scores=scores,
    )
    length = state.step + 1
    at_limit = length >= state.options.max_new
    finished = at_limit | self._settled(state, norm)
    if self.early_exit:
      finished |= _all_done(state)
    state = _keep_running(state, at_limit & ~state.kept.any(1), norm)
    return dataclasses.replace(state, step=length, finished=finished), parents

  def length_norm(self, length: np.ndarray) -> np.ndarray:
    """See `search.Rule`."""
    length = np.asarray(length, np.float64)
    return ((length + 5) / 5) ** self.length_norm_alpha

  def _settled(self, state: search.State, norm: jax.Array) -> jax.Array:
    """[S] bool: no running beam can change the hypotheses any more.

    log-probabilities are at most 0, and so is what rounding makes of them; a
    sum that falls while its divisor is the largest still to come stays below.
    """
    favourable = state.step + 2
    if self.length_norm_alpha > 0:
      favourable = state.options.max_new
    # Past the limit the index is clamped; the group is finished anyway.
    reach = state.scores[:, 0] / norm[favourable]
    beaten = state.kept.all(1) & (reach <= state.kept_scores.min(1))
    return beaten | (state.scores[:, 0] < _LOST)


def _likeliest_stop(
  state: search.State, logits: jax.Array
) -> tuple[jax.Array, jax.Array]:
  """Logits of the likeliest stop ids, -inf if barred, and these; each [S, R]."""
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
  state: search.State, ends: jax.Array, stops: jax.Array, norm: jax.Array
) -> search.State:
  """Keeps the best of the hypotheses and of the beams, ended where they are.

  Args:
    state: before the step.
    ends: [S, K], sums of log-probabilities with the stop id; -inf if barred.
    stops: [S, K] or [S, 1], the stop ids.
    norm: [M + 1], of lengths.
  """
  slots, k = ends.shape
  length = state.step + 1
  offered = ends > _LOST
  scores = jnp.where(offered, ends / norm[length][:, None], search.NEVER)
  kept_scores, pick = jax.lax.top_k(
    jnp.concatenate([state.kept_scores, scores], 1), k
  )

  def keep(old: jax.Array, new: jax.Array) -> jax.Array:
    return search.take(jnp.concatenate([old, new], 1), pick)

  each = jnp.broadcast_to(jnp.arange(k), (slots, k))
  stops = jnp.broadcast_to(stops, (slots, k))
  return dataclasses.replace(
    state,
    kept_tokens=keep(state.kept_tokens, search.append(state, each, stops)),
    kept_lengths=keep(
      state.kept_lengths, jnp.broadcast_to(length[:, None], (slots, k))
    ),
    kept_scores=kept_scores,
    kept=keep(state.kept, offered),
  )


def _keep_running(
  state: search.State, these: jax.Array, norm: jax.Array
) -> search.State:
  """Makes hypotheses of the running beams of the groups `these` [S]."""
  length = jnp.broadcast_to(state.step[:, None] + 1, state.scores.shape)
  running = dataclasses.replace(
    state,
    kept_tokens=state.tokens,
    kept_lengths=length,
    kept_scores=state.scores / norm[length],
    kept=state.scores > _LOST,
  )
  return search.freeze(these, running, state)


def _all_done(state: search.State) -> jax.Array:
  """[S] bool: every running beam has taken a stop id."""
  slots, k, most = state.tokens.shape
  ended = search.is_stop(state.options, state.tokens.reshape(slots, k * most))
  past = jnp.arange(most) <= state.step[:, None, None]
  return (ended.reshape(slots, k, most) & past).any(2).all(1)
