"""Attention of a decode step and of a prefill.

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
  mask [S, K or 1, T], True = visible.
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

  peak [S, N, K, 1]: the largest score; total [S, N, K, 1]: sum of
  exp(score - peak); mixed [S, N, K, H]: values weighted by exp(score - peak).
  """

  peak: jax.Array
  total: jax.Array
  mixed: jax.Array


def attend(
  queries: jax.Array, sources: Sequence[Source], cap: float | None = None
) -> jax.Array:
  """One softmax over several sources of keys, without joining them.

  Args:
    queries: [S, N, K, H] float32, the K beams of each of S groups.
    sources: the first is live, and each query sees at least one of its keys.
    cap: of scores, see `architecture.py`.

  Returns:
    [S, N, K, H] float32.
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
    queries: [B, N, T, H] float32.
    keys: [B, N, H, T].
    values: [B, N, T, H].
    past: keys before these.
    chunk: queries handled together.
    cap: as of `attend`.

  Returns:
    [B, N, T, H] float32.
  """
  length = queries.shape[2]
  outputs = []
  for start in range(0, length, chunk):
    end = min(start + chunk, length)
    visible = np.arange(end) <= np.arange(start, end)[:, None]
    seen = Source(
      jax.tree.map(lambda x, end=end: x[..., :end], keys),
      jax.tree.map(lambda x, end=end: x[:, :, :end], values),
      visible[None],
    )
    outputs.append(attend(queries[:, :, start:end], [seen, *past], cap))
  return jnp.concatenate(outputs, 2)


def _sums(queries: jax.Array, source: Source, cap: float | None) -> _Sums:
  keys, values = source.keys, source.values
  if source.layer is not None:
    keys = layers_lib.at(keys, source.layer)
    values = layers_lib.at(values, source.layer)
  spec = 'snkh,snth->snkt' if source.rows else 'snkh,snht->snkt'
  scores = einsum_lib.einsum(spec, queries, keys)
  if cap is not None:
    scores = cap * jnp.tanh(scores * (1 / cap))
  scores = jnp.where(source.mask[:, None], scores, _MASKED)
  peak = scores.max(-1, keepdims=True)
  weights = jnp.exp(scores - peak)
  return _Sums(
    peak,
    weights.sum(-1, keepdims=True),
    einsum_lib.einsum('snkt,snth->snkh', weights, values),
  )


def _join(a: _Sums, b: _Sums) -> _Sums:
  """Sums over the sources of both; all masked in `b` adds exactly nothing."""
  peak = jnp.maximum(a.peak, b.peak)
  share_a, share_b = jnp.exp(a.peak - peak), jnp.exp(b.peak - peak)
  return _Sums(
    peak,
    a.total * share_a + b.total * share_b,
    a.mixed * share_a + b.mixed * share_b,
  )
