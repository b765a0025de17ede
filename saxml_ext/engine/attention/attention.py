"""Computes attention for a decode step and for a prefill.

N is the number of heads that keys and values have. G queries share each head.
They are treated as rows of one head, so that its keys are read only once.

A prompt's keys are stored as [..., N, H, T] and its values as [..., N, T, H].
With these layouts both products read memory in order. On CPU they run at 62 and
98 GFLOP/s per core, compared with 7 and 8 for [T, N, H].
"""

from collections.abc import Sequence
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from saxml_ext.engine import layers as layers_lib
from saxml_ext.engine.attention import cache
from saxml_ext.engine.numerics import einsum as einsum_lib

# Masked scores are replaced by this value, because exp() of it is exactly 0.
_MASKED = np.float32(-1e30)
# The maximum number of earlier keys that a chunk of a prompt reads at a time.
_EARLIER_BLOCK = 256


class Source(NamedTuple):
  """The keys and values that the queries of a group may see.

  Attributes:
    keys: The keys, [S, N, H, T], or [S, N, T, H] if `rows` is True.
    values: The values, [S, N, T, H].
    mask: True for visible keys, [S, K or 1, T]. G queries share each row.
    live: False if no query whose result is used sees any of the keys, [] bool.
      The source then costs nothing. None stands for True.
    layer: The layer to read from stacked keys and values, [] int32. The layer
      is sliced at the point of use, which avoids a copy. None if keys and
      values are not stacked.
  """

  keys: cache.KV
  values: cache.KV
  mask: jax.Array
  live: jax.Array | None = None
  layer: jax.Array | None = None
  rows: bool = False


class Earlier(NamedTuple):
  """The first keys and values of prompts, of which the number is not static.

  Attributes:
    keys: The keys of all layers and slots, [L, S, N, H, T].
    values: The values, [L, S, N, T, H].
    layer: The layer, [] int32.
    slots: The slots of the prompts, [B] int32.
    length: The number of keys, [] int32, a multiple of `multiple`.
    multiple: A static divisor of `length`.
  """

  keys: cache.KV
  values: cache.KV
  layer: jax.Array
  slots: jax.Array
  length: jax.Array
  multiple: int

  @property
  def size(self) -> int:
    """The number of keys in a block."""
    return math.gcd(_EARLIER_BLOCK, self.multiple)

  def block(self, index: jax.Array) -> Source:
    """Returns a block of the keys and values."""
    start = index * self.size

    def part(x: jax.Array, axis: int) -> jax.Array:
      def slice_slot(slot: jax.Array) -> jax.Array:
        at = [self.layer, slot, *[0] * (x.ndim - 2)]
        sizes = [1, 1, *x.shape[2:]]
        at[axis], sizes[axis] = start, self.size
        return jax.lax.dynamic_slice(x, at, sizes)[0]

      return jnp.concatenate([slice_slot(slot) for slot in self.slots])

    return Source(
      jax.tree.map(lambda x: part(x, x.ndim - 1), self.keys),
      jax.tree.map(lambda x: part(x, 3), self.values),
      jnp.ones((1, 1, self.size), bool),
    )


class _Sums(NamedTuple):
  """The partial sums of a softmax over the sources so far.

  Attributes:
    peak: The largest score, [S, N, K * G, 1].
    total: The sum of exp(score - peak), [S, N, K * G, 1].
    mixed: The sum of the values weighted by exp(score - peak), [S, N, K * G,
      H].
  """

  peak: jax.Array
  total: jax.Array
  mixed: jax.Array


def attend(
  queries: jax.Array,
  sources: Sequence[Source | Earlier],
  cap: float | None = None,
) -> jax.Array:
  """Computes one softmax over several sources of keys without concatenation.

  Args:
    queries: The queries of the K beams of each of S groups, [S, N, K * G, H]
      float32; see `folded`.
    sources: The sources. The first one is live, and each query sees at least
      one of its keys.
    cap: The cap of scores; see `architecture.py`.

  Returns:
    The mixed values, [S, N, K * G, H] float32.
  """
  queries = queries * np.float32(1 / np.sqrt(queries.shape[-1]))
  assert isinstance(sources[0], Source)
  sums = _sums(queries, sources[0], cap)
  for source in sources[1:]:
    if isinstance(source, Earlier):

      def extend_by_block(
        i: jax.Array, sums: _Sums, source: Earlier = source
      ) -> _Sums:
        return _join(sums, _sums(queries, source.block(i), cap))

      count = source.length // source.size
      sums = jax.lax.fori_loop(0, count, extend_by_block, sums)
      continue

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
  past: Sequence[Source | Earlier] = (),
  chunk: int = 128,
  cap: float | None = None,
  firsts: jax.Array | None = None,
) -> jax.Array:
  """Computes causal attention of prompts, in chunks of queries.

  A chunk sees only the keys up to its end. This saves nearly half of the work
  on long prompts. The padding comes after the prompt, so no query of the prompt
  sees it.

  Args:
    queries: The queries, [B, N, T * G, H] float32; see `folded`.
    keys: The keys, [B, N, H, T].
    values: The values, [B, N, T, H].
    past: The keys and values before these.
    chunk: The number of queries computed together.
    cap: The cap of scores, as in `attend`.
    firsts: The first of the keys that each token sees, [T] int32, ascending.
      None stands for 0.

  Returns:
    The mixed values, [B, N, T * G, H] float32.
  """
  length = jax.tree.leaves(keys)[0].shape[-1]
  group = queries.shape[2] // length
  outputs = []
  for start in range(0, length, chunk):
    end = min(start + chunk, length)
    visible: Any = np.arange(end) <= np.arange(start, end)[:, None]
    if firsts is not None:
      visible = visible & (np.arange(end) >= firsts[start:end, None])
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
    queries: The queries, [G, S, N, K, H]. G queries share each of N heads of
      keys. The shape is [S, N, K, H] if no queries share keys.

  Returns:
    The queries, [S, N, K * G, H]. Row k * G + g is query g of beam k.
  """
  if queries.ndim == 4:
    return queries
  group, slots, heads, rows, width = queries.shape
  return jnp.moveaxis(queries, 0, 3).reshape(slots, heads, rows * group, width)


def unfolded(mixed: jax.Array, group: int) -> jax.Array:
  """Returns results [S, N, K * G, H] of shared heads as [S, N * G, K, H]."""
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
  """Returns the mask [S, K * G, T] of queries for a mask [S, K, T] of beams."""
  return mask if group == 1 else jnp.repeat(mask, group, 1)


def _join(a: _Sums, b: _Sums) -> _Sums:
  """Returns the partial sums over the sources of both.

  If `b` is fully masked, it adds exactly nothing.
  """
  peak = jnp.maximum(a.peak, b.peak)
  share_a, share_b = jnp.exp(a.peak - peak), jnp.exp(b.peak - peak)
  return _Sums(
    peak,
    a.total * share_a + b.total * share_b,
    a.mixed * share_a + b.mixed * share_b,
  )
