"""State of a search for answers, and what all its rules share.

A slot holds one request, whose group has K rows: beams of a beam search, or
samples. A rule, such as `beam.BeamRule`, tells how one decode step changes the
state; see `rule.py`. Each group has `Options` of its own.

Rows change places from step to step, their histories do not: each step writes
down what each row chose and which row it continues, and an answer is read by
going back from its end; see `trace.py`.
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from saxml_ext.engine.kernels import kernels
from saxml_ext.engine.search import trace as trace_lib

# Stands for "out of reach". Beam search adds it to scores, instead of putting
# it in their place, and so rounds as the reference does.
NEVER = np.float32(-1e9)
# Below it a beam is out of reach. Sums of log-probabilities stay far above.
LOST = NEVER / 2

# On CPU, [128, 4096] top 8: 0.4 ms with blocks of 16 to 64, 0.7 ms in one go.
_BLOCK = 64

# Fills up stop_ids: no token.
NO_TOKEN = -1

# How Options say when a beam search has finished.
EARLY_STOPPING = {False: 0, True: 1, 'never': 2}


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Options:
  """The options that requests may set, one row per request.

  Attributes:
    min_new: [S] int32, no stop id is chosen before this many tokens.
    max_new: [S] int32, at most M tokens are generated.
    stop_ids: [S, E] int32, tokens that end an answer, filled with NO_TOKEN.
    rows: [S] int32, the beams or samples that are wanted, at most K: the search
      is that of a group that has no more.
    sampled: [S] bool, samples; else beam search. Counts where the engine can do
      both.
    norms: [S, M + 1] float32, what a beam's sum of log-probabilities is divided
      by at each length to make a score.
    early_stopping: [S] int32, values of EARLY_STOPPING.
    told: [S] bool, the likeliest tokens in each place are wanted too.
    temperature: [S] float32, divides the logits that are sampled; 0 is greedy.
    top_k: [S] int32, samples come from this many tokens; 0 for all.
    top_p: [S] float32, samples come from the likeliest tokens that have this
      share of the probability.
    seed: [S] uint32, of a request's samples.
  """

  min_new: jax.Array
  max_new: jax.Array
  stop_ids: jax.Array
  rows: jax.Array
  sampled: jax.Array
  norms: jax.Array
  early_stopping: jax.Array
  told: jax.Array
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
    last: [S, K] int32, the running rows' last tokens; beams have the best
      first.
    scores: [S, K] float32, their sums of log-probabilities.
    ended: [S, K] bool, those that have chosen a stop id and run on.
    trace: of the running rows, and of those that they continue.
    kept: answers.
    finished: [S] bool, nothing more can change the answers.
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
  """Returns the options of `slots` groups that have no request."""
  zero = jnp.zeros((slots,), jnp.int32)
  return Options(
    min_new=zero,
    max_new=zero + max_new,
    stop_ids=jnp.full((slots, max_stop_ids), NO_TOKEN, jnp.int32),
    rows=zero + rows,
    sampled=jnp.zeros((slots,), bool),
    norms=jnp.ones((slots, max_new + 1), jnp.float32),
    early_stopping=zero,
    told=jnp.zeros((slots,), bool),
    temperature=jnp.zeros((slots,), jnp.float32),
    top_k=zero,
    top_p=jnp.ones((slots,), jnp.float32),
    seed=jnp.zeros((slots,), jnp.uint32),
  )


def freeze(live: jax.Array, new: State, old: State) -> State:
  """Returns `new` where live [S] is True, `old` elsewhere.

  Of the trace `new` throughout: what was added lies behind all that an answer
  of a finished group is made of.
  """

  def choose(a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.where(live.reshape((-1,) + (1,) * (a.ndim - 1)), a, b)

  return jax.tree.map(choose, new, dataclasses.replace(old, trace=new.trace))


def unused(options: Options, rows: int) -> jax.Array:
  """Returns the rows beyond those that each group uses; [S, K] bool."""
  return jnp.arange(rows) >= options.rows[:, None]


def without(these: jax.Array, scores: jax.Array) -> jax.Array:
  """Returns scores [S, n] with those of `these` [S, n] below all others."""
  return jnp.where(these, -jnp.inf, scores)


def keep_best(
  old: trace_lib.Kept, new: trace_lib.Kept, unused: jax.Array
) -> trace_lib.Kept:
  """Returns the best K of old and new answers, of equals the old ones first.

  Args:
    old: [S, K], the best first.
    new: [S, K].
    unused: [S, K] bool, places of the result that are to be empty.
  """
  both = jax.tree.map(lambda a, b: jnp.concatenate([a, b], 1), old, new)
  scores, pick = jax.lax.top_k(both.scores, unused.shape[1])
  best = jax.tree.map(lambda x: take(x, pick), both._replace(scores=None))
  return best._replace(scores=scores, present=best.present & ~unused)


def norm_at(options: Options, length: jax.Array) -> jax.Array:
  """Returns the divisors of scores at lengths [S] or [S, n]; [S, 1] or [S, n].

  Of lengths above M, where groups have finished, it is that of M.
  """
  length = length.reshape(options.norms.shape[0], -1)
  return jnp.take_along_axis(options.norms, length, 1, mode='clip')


def is_stop(options: Options, tokens: jax.Array) -> jax.Array:
  """Returns whether tokens [S, n] are stop ids of their group; [S, n] bool."""
  return (tokens[..., None] == options.stop_ids[:, None]).any(-1)


def barred(state: State) -> jax.Array:
  """Returns stop ids [S, E] int32 of groups that must go on; else NO_TOKEN."""
  early = (state.step < state.options.min_new)[:, None]
  return jnp.where(early, state.options.stop_ids, NO_TOKEN)


def bar_stops(state: State, logits: jax.Array) -> jax.Array:
  """Returns logits [S, R, V] without the stop ids of groups that must go on."""
  token = jnp.arange(logits.shape[-1])
  return jnp.where(
    (token == barred(state)[:, :, None]).any(1)[:, None], -jnp.inf, logits
  )


def log_total(logits: jax.Array) -> tuple[jax.Array, jax.Array]:
  """Returns the peak and log(sum(exp(logits - peak))), both [..., 1].

  `(x - peak) - log_total` is x's log-probability, rounded as transformers'.
  """
  peak = logits.max(-1, keepdims=True)
  return peak, jnp.log(jnp.exp(logits - peak).sum(-1, keepdims=True))


def top_k(x: jax.Array, k: int) -> tuple[jax.Array, jax.Array]:
  """Returns the k largest of each row of x [R, V], ties to the lower index.

  The largest of each block of a row are found first; the k best blocks hold
  the k best elements. What is left over behind the last whole block competes
  beside them.

  Returns:
    values and indices, [R, k], in descending order of value.
  """
  rows, width = x.shape
  if width <= 4 * k * _BLOCK:
    return jax.lax.top_k(x, k)
  whole = width - width % _BLOCK
  blocks = x[:, :whole].reshape(rows, -1, _BLOCK)
  best = jax.lax.top_k(blocks.max(-1), k)[1]
  best = jnp.sort(best, -1)  # Candidates in index order keep ties in order.
  candidates = jnp.take_along_axis(blocks, best[:, :, None], 1)
  candidates = candidates.reshape(rows, k * _BLOCK)
  candidates = jnp.concatenate([candidates, x[:, whole:]], -1)
  values, where = jax.lax.top_k(candidates, k)
  block = jnp.take_along_axis(best, jnp.minimum(where // _BLOCK, k - 1), 1)
  index = block * _BLOCK + where % _BLOCK
  rest = where - k * _BLOCK
  return values, jnp.where(rest >= 0, whole + rest, index)


class Likeliest(NamedTuple):
  """The likeliest tokens of each row that are not barred, best first.

  peak, log_total: [S, R, 1], see `log_total`; of all tokens.
  logits [S, R, C] float32; tokens [S, R, C] int32, of equals the lowest first.
  """

  peak: jax.Array
  log_total: jax.Array
  logits: jax.Array
  tokens: jax.Array


def likeliest(
  state: State, logits: jax.Array, count: int, bar: bool = True
) -> Likeliest:
  """Returns the `count` likeliest tokens by logits [S, R, V].

  With `bar` false, of all tokens, barred or not.

  The log-softmax is never written out: a row's best logits are its best
  log-probabilities, so only those need normalizing.
  """
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
    peak, total, best, tokens = kernels.find_likeliest(
      logits, stops if bar else jnp.full_like(stops, NO_TOKEN), count
    )
    return Likeliest(peak[..., None], total[..., None], best, tokens)

  return kernels.choose(by_kernel, by_xla, logits)


def take(x: jax.Array, indices: jax.Array) -> jax.Array:
  """Returns x[s, indices[s, i]] for x [S, n, ...]."""
  indices = indices.reshape(indices.shape + (1,) * (x.ndim - 2))
  return jnp.take_along_axis(x, indices, 1)
