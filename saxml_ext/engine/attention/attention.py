"""Attention of a decode step and of a prefill.

N is the number of heads that keys and values have. G queries share each: they
are rows of one head, so that one read of its keys serves all of them.

A prompt's keys lie as [..., N, H, T] and values as [..., N, T, H]: then both
products stream them in order of memory (62 and 98 GFLOP/s a core on CPU,
against 7 and 8 for [T, N, H]).
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from saxml_ext.engine import layers as layers_lib
from saxml_ext.engine.attention import cache
from saxml_ext.engine.numerics import einsum as einsum_lib

# Added nowhere, only put in place of masked scores: exp() of it is exactly 0.
_MASKED = np.float32(-1e30)


class Source(NamedTuple):
  """Keys that the queries of a group may see.

  keys [S, N, H, T], or if `rows` [S, N, T, H]; values [S, N, T, H].
  mask [S, K or 1, T], True = visible; each row is that of G queries.
  live [] bool: False if no query that matters sees any of it; then it costs
  nothing. None: always live.
  layer [] int32: keys and values are stacked, and this layer of them is meant.
  It is cut out where it is read, which spares a copy. None: they are not.
  """

  keys: cache.KV
  values: cache.KV
  mask: jax.Array
  live: jax.Array | None = None
  layer: jax.Array | None = None
  rows: bool = False


class _Sums(NamedTuple):
  """A softmax in progress, over the sources so far.

  peak [S, N, K * G, 1]: the largest score; total [S, N, K * G, 1]: sum of
  exp(score - peak); mixed [S, N, K * G, H]: values weighted by exp(score -
  peak).
  """

  peak: jax.Array
  total: jax.Array
  mixed: jax.Array


def attend(
  queries: jax.Array, sources: Sequence[Source], cap: float | None = None
) -> jax.Array:
  """One softmax over several sources of keys, without joining them.

  Args:
    queries: [S, N, K * G, H] float32, the K beams of each of S groups; see
      `folded`.
    sources: the first is live, and each query sees at least one of its keys.
    cap: of scores, see `architecture.py`.

  Returns:
    [S, N, K * G, H] float32.
  """
  queries = queries * np.float32(1 / np.sqrt(queries.shape[-1]))
  sums = _sums(queries, sources[0], cap)
  for source in sources[1:]:

    def extend(sums: _Sums, source: Source = source) -> _Sums:
      return _join(sums, _sums(queries, source, cap))

    if source.live is None:
      sums = extend(sums)
    else:
      sums = jax.lax.cond(source.live, extend, lambda sums: sums, sums)
  return sums.mixed / sums.total


def attend_causal(
  queries: jax.Array,
  keys: cache.KV,
  values: cache.KV,
  past: Sequence[Source] = (),
  chunk: int = 128,
  cap: float | None = None,
) -> jax.Array:
  """Causal attention of prompts, in chunks of queries.

  A chunk sees only the keys up to its end, which saves near half of the work
  on long prompts. Padding lies behind the prompt, where no real query looks.

  Args:
    queries: [B, N, T * G, H] float32; see `folded`.
    keys: [B, N, H, T].
    values: [B, N, T, H].
    past: keys before these.
    chunk: queries handled together.
    cap: as of `attend`.

  Returns:
    [B, N, T * G, H] float32.
  """
  length = jax.tree.leaves(keys)[0].shape[-1]
  group = queries.shape[2] // length
  outputs = []
  for start in range(0, length, chunk):
    end = min(start + chunk, length)
    visible = np.arange(end) <= np.arange(start, end)[:, None]
    seen = Source(
      jax.tree.map(lambda x, end=end: x[..., :end], keys),
      jax.tree.map(lambda x, end=end: x[:, :, :end], values),
      visible[None],
    )
    some = queries[:, :, start * group : end * group]
    outputs.append(attend(some, [seen, *past], cap))
  return jnp.concatenate(outputs, 2)


def folded(queries: jax.Array) -> jax.Array:
  """Returns queries that share keys as rows of one head.

  Args:
    queries: [G, S, N, K, H]: G queries share each of N heads of keys. Or
      [S, N, K, H], which none share.

  Returns:
    [S, N, K * G, H], in which row k * G + g is query g of beam k.
  """
  if queries.ndim == 4:
    return queries
  group, slots, heads, rows, width = queries.shape
  return jnp.moveaxis(queries, 0, 3).reshape(slots, heads, rows * group, width)


def unfolded(mixed: jax.Array, group: int) -> jax.Array:
  """Returns results [S, N, K * G, H] by attention heads, [S, N * G, K, H]."""
  if group == 1:
    return mixed
  slots, heads, rows, width = mixed.shape
  mixed = mixed.reshape(slots, heads, rows // group, group, width)
  return mixed.swapaxes(2, 3).reshape(slots, heads * group, -1, width)


def _sums(queries: jax.Array, source: Source, cap: float | None) -> _Sums:
  keys, values = source.keys, source.values
  if source.layer is not None:
    keys = layers_lib.at(keys, source.layer)
    values = layers_lib.at(values, source.layer)
  spec = 'snkh,snth->snkt' if source.rows else 'snkh,snht->snkt'
  scores = einsum_lib.einsum(spec, queries, keys)
  if cap is not None:
    scores = cap * jnp.tanh(scores * (1 / cap))
  mask = source.mask
  if mask.shape[1] > 1:
    mask = repeated(mask, queries.shape[2] // mask.shape[1])
  scores = jnp.where(mask[:, None], scores, _MASKED)
  peak = scores.max(-1, keepdims=True)
  weights = jnp.exp(scores - peak)
  return _Sums(
    peak,
    weights.sum(-1, keepdims=True),
    einsum_lib.einsum('snkt,snth->snkh', weights, values),
  )


def repeated(mask: jax.Array | np.ndarray, group: int) -> jax.Array:
  """Returns a mask [S, K * G, T] of what beams see, [S, K, T]."""
  return mask if group == 1 else jnp.repeat(mask, group, 1)


def _join(a: _Sums, b: _Sums) -> _Sums:
  """Sums over the sources of both; all masked in `b` adds exactly nothing."""
  peak = jnp.maximum(a.peak, b.peak)
  share_a, share_b = jnp.exp(a.peak - peak), jnp.exp(b.peak - peak)
  return _Sums(
    peak,
    a.total * share_a + b.total * share_b,
    a.mixed * share_a + b.mixed * share_b,
  )
