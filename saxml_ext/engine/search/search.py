"""State of a search for answers, and what all its rules share.

A slot holds one request, whose group has K rows: beams of a beam search, or
samples. A rule, such as `beam.BeamRule`, tells how one decode step changes the
state; see `Rule`. All groups of an engine follow one rule, each with its own
`Options`.
"""

import dataclasses
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from saxml_ext.engine.kernels import kernels
from saxml_ext.engine.search import topk

# Stands for "out of reach". Beam search adds it to scores, instead of putting
# it in their place, and so rounds as the reference does.
NEVER = np.float32(-1e9)

# Fills up stop_ids: no token.
NO_TOKEN = -1


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Options:
  """What requests may ask for, one row per request.

  Attributes:
    min_new: [S] int32, no stop id is chosen before this many tokens.
    max_new: [S] int32, at most M tokens are generated.
    stop_ids: [S, E] int32, tokens that end an answer, filled with NO_TOKEN.
    temperature: [S] float32, divides the logits that are sampled; 0 is greedy.
    top_k: [S] int32, samples come from this many tokens; 0 for all.
    top_p: [S] float32, samples come from the likeliest tokens that have this
      share of the probability.
    seed: [S] uint32, of a request's samples.
  """

  min_new: jax.Array
  max_new: jax.Array
  stop_ids: jax.Array
  temperature: jax.Array
  top_k: jax.Array
  top_p: jax.Array
  seed: jax.Array


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class State:
  """The searches of S groups with K rows, up to M tokens each.

  Attributes:
    options: of the groups' requests.
    step: [S] int32, tokens generated so far.
    tokens: [S, K, M] int32, running rows; beams have the best first.
    scores: [S, K] float32, their sums of log-probabilities.
    kept_tokens: [S, K, M] int32, answers; of beams the best first.
    kept_lengths: [S, K] int32, their tokens, the stop id included.
    kept_scores: [S, K] float32, what the rule ranks them by.
    kept: [S, K] bool, False where there is no answer yet.
    finished: [S] bool, nothing more can change the answers.
  """

  options: Options
  step: jax.Array
  tokens: jax.Array
  scores: jax.Array
  kept_tokens: jax.Array
  kept_lengths: jax.Array
  kept_scores: jax.Array
  kept: jax.Array
  finished: jax.Array


class Rule(Protocol):
  """How a decode step changes the searches."""

  def initial(self, options: Options, max_tokens: int) -> State:
    """State before the first token."""

  def advance(self, state: State, logits: jax.Array) -> tuple[State, jax.Array]:
    """Adds one token to every running row.

    Args:
      state: before the step.
      logits: [S, K, V] float32, of the token after each running row; or
        [S, 1, V] after the prompt, when all rows are still the same.

    Returns:
      The state after the step, and [S, K] int32: which row each running row
      continues. Finished groups go on as if they were not; the caller keeps
      their old state (see `freeze`).
    """

  def length_norm(self, length: np.ndarray) -> np.ndarray:
    """What a sum of log-probabilities is divided by to make a score."""


def options_like(slots: int, max_stop_ids: int, max_new: int) -> Options:
  """Options of `slots` groups that have no request."""
  zero = jnp.zeros((slots,), jnp.int32)
  return Options(
    min_new=zero,
    max_new=zero + max_new,
    stop_ids=jnp.full((slots, max_stop_ids), NO_TOKEN, jnp.int32),
    temperature=jnp.zeros((slots,), jnp.float32),
    top_k=zero,
    top_p=jnp.ones((slots,), jnp.float32),
    seed=jnp.zeros((slots,), jnp.uint32),
  )


def initial(options: Options, rows: int, max_tokens: int) -> State:
  """State before the first token: nothing chosen, nothing kept."""
  slots = options.min_new.shape[0]
  tokens = jnp.zeros((slots, rows, max_tokens), jnp.int32)
  return State(
    options=options,
    step=jnp.zeros((slots,), jnp.int32),
    tokens=tokens,
    scores=jnp.zeros((slots, rows), jnp.float32),
    kept_tokens=tokens,
    kept_lengths=jnp.zeros((slots, rows), jnp.int32),
    kept_scores=jnp.full((slots, rows), NEVER),
    kept=jnp.zeros((slots, rows), bool),
    finished=jnp.zeros((slots,), bool),
  )


def freeze(live: jax.Array, new: State, old: State) -> State:
  """`new` where live [S] is True, `old` elsewhere."""

  def choose(a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.where(live.reshape((-1,) + (1,) * (a.ndim - 1)), a, b)

  return jax.tree.map(choose, new, old)


def is_stop(options: Options, tokens: jax.Array) -> jax.Array:
  """Whether tokens [S, n] are stop ids of their group; [S, n] bool."""
  return (tokens[..., None] == options.stop_ids[:, None]).any(-1)


def barred(state: State) -> jax.Array:
  """Stop ids [S, E] int32 of groups that must go on; else NO_TOKEN."""
  early = (state.step < state.options.min_new)[:, None]
  return jnp.where(early, state.options.stop_ids, NO_TOKEN)


def bar_stops(state: State, logits: jax.Array) -> jax.Array:
  """Logits [S, R, V] without the stop ids of groups that must go on."""
  token = jnp.arange(logits.shape[-1])
  return jnp.where(
    (token == barred(state)[:, :, None]).any(1)[:, None], -jnp.inf, logits
  )


def log_total(logits: jax.Array) -> tuple[jax.Array, jax.Array]:
  """Peak and logarithm of sum(exp(logits - peak)), both [..., 1].

  `(x - peak) - log_total` is x's log-probability, rounded as transformers'.
  """
  peak = logits.max(-1, keepdims=True)
  return peak, jnp.log(jnp.exp(logits - peak).sum(-1, keepdims=True))


class Likeliest(NamedTuple):
  """The likeliest tokens of each row that are not barred, best first.

  peak, log_total: [S, R, 1], see `log_total`; of all tokens.
  logits [S, R, C] float32; tokens [S, R, C] int32, of equals the lowest first.
  """

  peak: jax.Array
  log_total: jax.Array
  logits: jax.Array
  tokens: jax.Array


def likeliest(state: State, logits: jax.Array, count: int) -> Likeliest:
  """The `count` likeliest tokens by logits [S, R, V].

  The log-softmax is never written out: a row's best logits are its best
  log-probabilities, so only those need normalizing.
  """
  slots, rows, vocab = logits.shape

  def by_xla(logits: jax.Array) -> Likeliest:
    candidates = bar_stops(state, logits).reshape(slots * rows, vocab)
    best, tokens = topk.top_k(candidates, count)
    shape = (slots, rows, count)
    return Likeliest(
      *log_total(logits), best.reshape(shape), tokens.reshape(shape)
    )

  def by_kernel(logits: jax.Array) -> Likeliest:
    peak, total, best, tokens = kernels.find_likeliest(
      logits, barred(state), count
    )
    return Likeliest(peak[..., None], total[..., None], best, tokens)

  if not kernels.usable():
    return by_xla(logits)
  return jax.lax.platform_dependent(logits, cpu=by_kernel, default=by_xla)


class Candidates(NamedTuple):
  """The best continuations of each group's rows, best first.

  sums [S, C] float32: scores of their rows and log-probabilities of their
  tokens; log_probs [S, C] float32: the latter alone; rows, tokens [S, C] int32.
  Of equal sums the lower row comes first, of one row the larger logit, of
  equal logits the lower token.
  peak, log_total: [S, R, 1], see `log_total`; of all tokens.
  """

  sums: jax.Array
  log_probs: jax.Array
  rows: jax.Array
  tokens: jax.Array
  peak: jax.Array
  log_total: jax.Array


def candidates(
  state: State, logits: jax.Array, count: int, active: jax.Array | None = None
) -> Candidates:
  """The `count` best continuations, or all if there are fewer.

  Args:
    state: before the step; its stop ids are barred as of `barred`.
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
      bar_stops(state, logits).reshape(slots * rows, vocab), width
    )
    best, tokens = (x.reshape(slots, rows, width) for x in (best, tokens))
    peak, total = log_total(logits)
    log_probs = (best - peak) - total
    continued = jnp.arange(rows) < active[:, None]
    sums = jnp.where(
      continued[..., None], log_probs + scores[..., None], -jnp.inf
    )
    sums, pick = jax.lax.top_k(sums.reshape(slots, -1), count)
    log_probs, tokens = (
      take(x.reshape(slots, -1), pick) for x in (log_probs, tokens)
    )
    return Candidates(sums, log_probs, pick // width, tokens, peak, total)

  def by_kernel(logits: jax.Array) -> Candidates:
    peak, total, sums, log_probs, beams, tokens = kernels.find_candidates(
      logits, scores, barred(state), active, count
    )
    return Candidates(
      sums, log_probs, beams, tokens, peak[..., None], total[..., None]
    )

  if not kernels.usable():
    return by_xla(logits)
  return jax.lax.platform_dependent(logits, cpu=by_kernel, default=by_xla)


def append(state: State, rows: jax.Array, tokens: jax.Array) -> jax.Array:
  """Tokens [S, n, M] of the given rows [S, n], each with its next token."""
  history = jnp.take_along_axis(state.tokens, rows[:, :, None], 1)
  here = jnp.arange(history.shape[-1]) == state.step[:, None, None]
  return jnp.where(here, tokens[:, :, None], history)


def take(x: jax.Array, indices: jax.Array) -> jax.Array:
  """x[s, indices[s, i]] for x [S, n, ...]."""
  indices = indices.reshape(indices.shape + (1,) * (x.ndim - 2))
  return jnp.take_along_axis(x, indices, 1)
