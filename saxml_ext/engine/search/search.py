"""Defines the state of a search for answers, and operations that rules share.

A slot holds one request. The request's group has K rows, which are the beams of
a beam search, or samples. A rule, such as `beam.BeamRule`, defines how a decode
step changes the state; see `rule.py`. Each group has its own `Options`.

The order of rows changes from step to step, but their histories are not moved.
Each step records the choice of each row and the row that it continues. An
answer is read backward from its last token; see `trace.py`.
"""

from collections.abc import Callable
import dataclasses
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from saxml_ext.engine.kernels import candidates as candidates_lib
from saxml_ext.engine.kernels import kernels
from saxml_ext.engine.search import trace as trace_lib

# A score that stands for "out of reach". Beam search adds it to scores, as the
# reference does, because a replacement would be rounded differently.
NEVER = np.float32(-1e9)
# A beam with a score below this is out of reach. Sums of log-probabilities stay
# far above it.
LOST = NEVER / 2

# On CPU, the top 8 of [128, 4096] take 0.4 ms in blocks of 16 to 64 elements,
# and 0.7 ms without blocks.
_BLOCK = 64

# Padding of stop_ids.
NO_TOKEN = -1

# The codes in `Options` for the criterion that finishes a beam search.
EARLY_STOPPING = {False: 0, True: 1, 'never': 2}


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Options:
  """The options that requests may set, one row per request.

  Attributes:
    min_new: The number of tokens before which no stop id is chosen, [S] int32.
    max_new: The maximum number of generated tokens, at most M, [S] int32.
    stop_ids: The tokens that end an answer, padded with NO_TOKEN, [S, E] int32.
    rows: The number of beams or samples, at most K, [S] int32. The search runs
      as in a group with exactly this number of rows.
    sampled: True for sampling, False for beam search, [S] bool. It is used only
      if the engine supports both.
    norms: The divisors of a beam's sum of log-probabilities at each length, [S,
      M + 1] float32. The quotient is the score.
    early_stopping: The values of EARLY_STOPPING, [S] int32.
    alternatives: True if the likeliest tokens at each position are returned
      too, [S] bool.
    temperature: The divisors of the logits in sampling, [S] float32; 0 is
      greedy.
    top_k: The number of tokens from which samples are drawn, [S] int32; 0
      stands for all tokens, or for those that the rule finds.
    top_p: The share of probability of the likeliest tokens from which samples
      are drawn, [S] float32.
    seed: The seeds of the requests' samples, [S] uint32.
  """

  min_new: jax.Array
  max_new: jax.Array
  stop_ids: jax.Array
  rows: jax.Array
  sampled: jax.Array
  norms: jax.Array
  early_stopping: jax.Array
  alternatives: jax.Array
  temperature: jax.Array
  top_k: jax.Array
  top_p: jax.Array
  seed: jax.Array


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class State:
  """The searches of S groups with K rows, up to M tokens each.

  Attributes:
    options: The options of the groups' requests.
    step: The number of tokens generated so far, [S] int32.
    last: The last tokens of the running rows, [S, K] int32. Beams are sorted,
      the best first.
    scores: The sums of log-probabilities of the running rows, [S, K] float32.
    ended: True for rows that have chosen a stop id and run on, [S, K] bool.
    trace: The choices of the running rows and of the rows that they continue.
    kept: The answers so far.
    finished: True for groups whose answers cannot change any more, [S] bool.
  """

  options: Options
  step: jax.Array
  last: jax.Array
  scores: jax.Array
  ended: jax.Array
  trace: trace_lib.Trace
  kept: trace_lib.Kept
  finished: jax.Array


def options_like(
  slots: int, max_stop_ids: int, max_new: int, rows: int = 1
) -> Options:
  """Returns the options of `slots` groups without requests."""
  zero = jnp.zeros((slots,), jnp.int32)
  return Options(
    min_new=zero,
    max_new=zero + max_new,
    stop_ids=jnp.full((slots, max_stop_ids), NO_TOKEN, jnp.int32),
    rows=zero + rows,
    sampled=jnp.zeros((slots,), bool),
    norms=jnp.ones((slots, max_new + 1), jnp.float32),
    early_stopping=zero,
    alternatives=jnp.zeros((slots,), bool),
    temperature=jnp.zeros((slots,), jnp.float32),
    top_k=zero,
    top_p=jnp.ones((slots,), jnp.float32),
    seed=jnp.zeros((slots,), jnp.uint32),
  )


def freeze(live: jax.Array, new: State, old: State) -> State:
  """Returns `new` for groups where live [S] is True, and `old` for the others.

  The trace is always taken from `new`. The added steps come after all steps
  that belong to an answer of a finished group.
  """

  def choose(a: jax.Array, b: jax.Array) -> jax.Array:
    if len(a) != len(live):
      return a  # A trace of all groups, which was written in place.
    return jnp.where(live.reshape((-1,) + (1,) * (a.ndim - 1)), a, b)

  return jax.tree.map(choose, new, dataclasses.replace(old, trace=new.trace))


def unused(options: Options, rows: int) -> jax.Array:
  """Returns [S, K] bool: True for rows beyond those that each group uses."""
  return jnp.arange(rows) >= options.rows[:, None]


def without(these: jax.Array, scores: jax.Array) -> jax.Array:
  """Returns scores [S, n] in which `these` [S, n] rank below all others."""
  return jnp.where(these, -jnp.inf, scores)


def keep_best(
  old: trace_lib.Kept, new: trace_lib.Kept, unused: jax.Array
) -> trace_lib.Kept:
  """Returns the best K of the old and new answers; ties go to the old ones.

  Args:
    old: The old answers, [S, K], best first.
    new: The new answers, [S, K].
    unused: True for positions that stay empty in the result, [S, K] bool.
  """
  both = jax.tree.map(lambda a, b: jnp.concatenate([a, b], 1), old, new)
  scores, pick = jax.lax.top_k(both.scores, unused.shape[1])
  best = jax.tree.map(lambda x: take(x, pick), both._replace(scores=None))
  return best._replace(scores=scores, present=best.present & ~unused)


def norm_at(options: Options, length: jax.Array) -> jax.Array:
  """Returns the divisors of scores at lengths [S] or [S, n]; [S, 1] or [S, n].

  Lengths above M occur only in finished groups. They get the divisor of M.
  """
  length = length.reshape(options.norms.shape[0], -1)
  return jnp.take_along_axis(options.norms, length, 1, mode='clip')


def is_stop(options: Options, tokens: jax.Array) -> jax.Array:
  """Returns [S, n] bool: True for tokens [S, n] that are stop ids.

  Each group has its own stop ids.
  """
  return (tokens[..., None] == options.stop_ids[:, None]).any(-1)


def barred(state: State) -> jax.Array:
  """Returns the stop ids [S, E] int32 that groups may not choose yet.

  Elements are NO_TOKEN for groups that may end.
  """
  early = (state.step < state.options.min_new)[:, None]
  return jnp.where(early, state.options.stop_ids, NO_TOKEN)


def bar_stops(state: State, logits: jax.Array) -> jax.Array:
  """Returns logits [S, R, V] that exclude the stop ids of `barred`."""
  token = jnp.arange(logits.shape[-1])
  return jnp.where(
    (token == barred(state)[:, :, None]).any(1)[:, None], -jnp.inf, logits
  )


def log_total(logits: jax.Array) -> tuple[jax.Array, jax.Array]:
  """Returns the peak and log(sum(exp(logits - peak))), both [..., 1].

  The log-probability of x is `(x - peak) - log_total`. It is rounded in the
  same way as in transformers.
  """
  peak = logits.max(-1, keepdims=True)
  return peak, jnp.log(jnp.exp(logits - peak).sum(-1, keepdims=True))


def top_k(x: jax.Array, k: int) -> tuple[jax.Array, jax.Array]:
  """Returns the k largest of each row of x [R, V], ties to the lower index.

  The first pass finds the largest element of each block of a row. The k best
  blocks contain the k best elements. Elements after the last whole block are
  compared together with these blocks.

  Returns:
    The values and the indices, [R, k], in descending order of value.
  """
  rows, width = x.shape
  if width <= 4 * k * _BLOCK:
    return jax.lax.top_k(x, k)
  whole = width - width % _BLOCK
  blocks = x[:, :whole].reshape(rows, -1, _BLOCK)
  best = jax.lax.top_k(blocks.max(-1), k)[1]
  best = jnp.sort(best, -1)  # Ties need ascending indices.
  candidates = jnp.take_along_axis(blocks, best[:, :, None], 1)
  candidates = candidates.reshape(rows, k * _BLOCK)
  candidates = jnp.concatenate([candidates, x[:, whole:]], -1)
  values, where = jax.lax.top_k(candidates, k)
  block = jnp.take_along_axis(best, jnp.minimum(where // _BLOCK, k - 1), 1)
  index = block * _BLOCK + where % _BLOCK
  rest = where - k * _BLOCK
  return values, jnp.where(rest >= 0, whole + rest, index)


class Likeliest(NamedTuple):
  """The likeliest tokens of each row that are not excluded, best first.

  Attributes:
    peak: The largest logit of each row, [S, R, 1]. See `log_total`.
    log_total: The logarithm of the total over all tokens, [S, R, 1].
    logits: The logits of the tokens, [S, R, C] float32.
    tokens: The tokens, [S, R, C] int32. If logits are equal, the lowest token
      comes first.
  """

  peak: jax.Array
  log_total: jax.Array
  logits: jax.Array
  tokens: jax.Array


@dataclasses.dataclass(frozen=True)
class Head:
  """The logits of a step, which are computed only if they are all needed.

  Attributes:
    shape: The shape of the logits, [S, R, V].
    logits: The function that computes them, float32.
    find: The function that finds the likeliest tokens, without excluding any,
      and does not write the logits. Its argument is their number. It runs on a
      CPU only. None if there is no such function for this model.
    best: The tokens that `find` has found, or None.
  """

  shape: tuple[int, int, int]
  logits: Callable[[], jax.Array]
  find: Callable[[int], Likeliest] | None
  best: Likeliest | None = None


# The logits of a step, [S, R, V] float32, or a Head whose `best` is set.
Logits: TypeAlias = jax.Array | Head


def whole(logits: Logits) -> jax.Array:
  """Returns all logits."""
  return logits.logits() if isinstance(logits, Head) else logits


def likeliest(
  state: State, logits: Logits, count: int, bar: bool = True
) -> Likeliest:
  """Returns the `count` likeliest tokens by logits [S, R, V].

  The log-softmax is not computed for the whole vocabulary. The best logits of a
  row have the best log-probabilities, so only these are normalized.

  Args:
    state: The state, which determines the excluded stop ids.
    logits: The logits, [S, R, V]. If they are a Head, enough of its tokens must
      be known to exclude some.
    count: The number of tokens to return.
    bar: True to exclude stop ids that groups may not choose yet.
  """
  if isinstance(logits, Head):
    assert logits.best is not None
    return _first(logits.best, count, barred(state) if bar else None)
  slots, rows, vocab = logits.shape

  def by_xla(logits: jax.Array) -> Likeliest:
    candidates = bar_stops(state, logits) if bar else logits
    candidates = candidates.reshape(slots * rows, vocab)
    best, tokens = top_k(candidates, count)
    shape = (slots, rows, count)
    return Likeliest(
      *log_total(logits), best.reshape(shape), tokens.reshape(shape)
    )

  def by_kernel(logits: jax.Array) -> Likeliest:
    stops = barred(state)
    peak, total, best, tokens = candidates_lib.find_likeliest(
      logits, stops if bar else jnp.full_like(stops, NO_TOKEN), count
    )
    return Likeliest(peak[..., None], total[..., None], best, tokens)

  return kernels.choose(by_kernel, by_xla, logits)


def _first(top: Likeliest, count: int, out: jax.Array | None) -> Likeliest:
  """Returns the first tokens of `top` that are not in out [S, E]."""
  if out is None:
    return top._replace(
      logits=top.logits[..., :count], tokens=top.tokens[..., :count]
    )
  excluded = (top.tokens[..., None] == out[:, None, None]).any(-1)
  order = jnp.argsort(excluded, -1, stable=True)[..., :count]
  best = jnp.where(excluded, -jnp.inf, top.logits)
  return top._replace(
    logits=jnp.take_along_axis(best, order, -1),
    tokens=jnp.take_along_axis(top.tokens, order, -1),
  )


def take(x: jax.Array, indices: jax.Array) -> jax.Array:
  """Returns x[s, indices[s, i]] for x [S, n, ...]."""
  indices = indices.reshape(indices.shape + (1,) * (x.ndim - 2))
  return jnp.take_along_axis(x, indices, 1)
