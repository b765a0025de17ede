"""Beam search as one pure function of log-probabilities and state.

The rule is that of transformers' GenerationMixin with num_beams > 1, which is
the reference's. For each group of K beams, at each step:

1. Of all K * V continuations the 2K with the highest sum of log-probabilities
   are candidates.
2. A candidate has ended if its token is the end of sequence, or if it is as
   long as the request allows. The best K that have not ended run on.
3. Of the first K candidates, those that have ended become hypotheses, scored
   sum / length**length_penalty; the best K hypotheses ever seen are kept.
4. The group is finished when K hypotheses are kept (early_stopping), when no
   running beam can become better than the worst of them, or at the limit.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from saxml_ext.engine import topk

# Stands for "not a candidate". It is added to scores, not put in their place,
# and so rounds as the reference does.
_NEVER = np.float32(-1e9)


@dataclasses.dataclass(frozen=True)
class BeamRule:
  """The settings of a search; see `config.EngineConfig`."""

  eos_id: int
  num_beams: int
  length_penalty: float = 1.0
  early_stopping: bool | str = True


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class BeamState:
  """The searches of S groups with K beams, up to M tokens each.

  Attributes:
    step: [S] int32, tokens generated so far.
    min_new: [S] int32, end of sequence is barred before this many tokens.
    max_new: [S] int32, at most M.
    tokens: [S, K, M] int32, running beams, best first.
    scores: [S, K] float32, their sums of log-probabilities.
    kept_tokens: [S, K, M] int32, hypotheses, best first.
    kept_lengths: [S, K] int32, their tokens, the end of sequence included.
    kept_scores: [S, K] float32, length-normalized.
    kept: [S, K] bool, False where there is no hypothesis yet.
    finished: [S] bool, nothing more can change the hypotheses.
  """

  step: jax.Array
  min_new: jax.Array
  max_new: jax.Array
  tokens: jax.Array
  scores: jax.Array
  kept_tokens: jax.Array
  kept_lengths: jax.Array
  kept_scores: jax.Array
  kept: jax.Array
  finished: jax.Array


def initial(
    min_new: jax.Array, max_new: jax.Array, num_beams: int, max_tokens: int
) -> BeamState:
  """State before the first token; min_new and max_new are [S] int32.

  All but the first beam start out of reach: the beams are still the same.
  """
  slots = min_new.shape[0]
  tokens = jnp.zeros((slots, num_beams, max_tokens), jnp.int32)
  never = jnp.full((slots, num_beams), _NEVER)
  return BeamState(
      step=jnp.zeros((slots,), jnp.int32),
      min_new=min_new,
      max_new=max_new,
      tokens=tokens,
      scores=never.at[:, 0].set(0.0),
      kept_tokens=tokens,
      kept_lengths=jnp.zeros((slots, num_beams), jnp.int32),
      kept_scores=never,
      kept=jnp.zeros((slots, num_beams), bool),
      finished=jnp.zeros((slots,), bool),
  )


def advance(
    rule: BeamRule, state: BeamState, logits: jax.Array
) -> tuple[BeamState, jax.Array]:
  """Adds one token to every running beam.

  Args:
    rule: static settings.
    state: before the step.
    logits: [S, K, V] float32, of the token after each running beam.

  Returns:
    The state after the step, and [S, K] int32: which beam each running beam
    continues. Finished groups go on as if they were not; the caller keeps
    their old state (see `freeze`).
  """
  k = rule.num_beams
  sums, beams, tokens = _candidates(rule, state, logits)
  length = state.step + 1
  ended = (tokens == rule.eos_id) | (length >= state.max_new)[:, None]

  scores, pick = jax.lax.top_k(sums + ended * _NEVER, k)
  parents = _take(beams, pick)
  running = _append(state, parents, _take(tokens, pick))

  norm = _length_norms(rule, state)
  new = sums[:, :k] / norm[length][:, None] + ~ended[:, :k] * _NEVER
  merged = jnp.concatenate([state.kept_scores, new], 1)
  kept_scores, pick = jax.lax.top_k(merged, k)

  def keep(old: jax.Array, new: jax.Array) -> jax.Array:
    return _take(jnp.concatenate([old, new], 1), pick)

  kept = keep(state.kept, ended[:, :k])
  worst = jnp.where(kept, kept_scores.min(1, keepdims=True), _NEVER)
  hopeful = length
  if rule.early_stopping == "never" and rule.length_penalty > 0:
    hopeful = state.max_new
  reach = scores[:, :1] / norm[hopeful][:, None]
  finished = ~(reach > worst).any(1) | (length >= state.max_new)
  if rule.early_stopping is True:
    finished |= kept.all(1)
  return (
      dataclasses.replace(
          state,
          step=length,
          tokens=running,
          scores=scores,
          kept_tokens=keep(
              state.kept_tokens, _append(state, beams[:, :k], tokens[:, :k])
          ),
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


def freeze(live: jax.Array, new: BeamState, old: BeamState) -> BeamState:
  """`new` where live [S] is True, `old` elsewhere."""

  def choose(a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.where(live.reshape((-1,) + (1,) * (a.ndim - 1)), a, b)

  return jax.tree.map(choose, new, old)


def _candidates(
    rule: BeamRule, state: BeamState, logits: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
  """The best 2K continuations: sums, beams and tokens, each [S, 2K].

  The log-softmax is never written out: a beam's best logits are its best
  log-probabilities, so only 2K of each beam's V need normalizing.
  """
  slots, k, vocab = logits.shape
  count = 2 * k
  peak = logits.max(-1, keepdims=True)
  log_total = jnp.log(jnp.exp(logits - peak).sum(-1, keepdims=True))
  barred = (state.step < state.min_new)[:, None, None]
  open_logits = jnp.where(
      barred & (jnp.arange(vocab) == rule.eos_id), -jnp.inf, logits
  )
  best, tokens = topk.top_k(
      open_logits.reshape(slots * k, vocab), min(count, vocab)
  )
  width = best.shape[-1]
  best = best.reshape(slots, k, width)
  sums = (best - peak) - log_total + state.scores[:, :, None]
  sums, pick = jax.lax.top_k(sums.reshape(slots, k * width), count)
  tokens = _take(tokens.reshape(slots, k * width), pick)
  return sums, pick // width, tokens


def _append(state: BeamState, beams: jax.Array, tokens: jax.Array) -> jax.Array:
  """Tokens [S, n, M] of the given beams [S, n], each with its next token."""
  history = jnp.take_along_axis(state.tokens, beams[:, :, None], 1)
  here = jnp.arange(history.shape[-1]) == state.step[:, None, None]
  return jnp.where(here, tokens[:, :, None], history)


def _length_norms(rule: BeamRule, state: BeamState) -> jax.Array:
  """length**length_penalty for lengths 0 to M, rounded once."""
  lengths = np.arange(state.tokens.shape[-1] + 1, dtype=np.float64)
  lengths[0] = 1  # Not a length; avoids 0 to a negative power.
  return jnp.asarray(lengths**rule.length_penalty, jnp.float32)


def _take(x: jax.Array, indices: jax.Array) -> jax.Array:
  """x[s, indices[s, i]] for x [S, n, ...]."""
  indices = indices.reshape(indices.shape + (1,) * (x.ndim - 2))
  return jnp.take_along_axis(x, indices, 1)
