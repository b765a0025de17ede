"""Computes causal attention of prompts on NVIDIA GPUs with a Pallas kernel.

XLA would write the scores to memory, and compute each chunk of queries with
several kernels. Here each block of queries of a prompt and a head is one program
of a grid, and its scores stay in registers. All queries that share a key read it
once.
"""

import functools

import jax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
import jax.numpy as jnp

from saxml_ext.engine.kernels.gpu import decode_kernel
from saxml_ext.engine.kernels.tpu import decode_kernel as tpu_kernel

# The number of queries in a block. Products of float32 with the highest
# precision have no tensor cores, and their operands take many registers.
_ROWS = 128
_EXACT_ROWS = 16


def attend(
  queries: jax.Array,
  kv: tpu_kernel.KV,
  firsts: jax.Array | None = None,
  group: int = 1,
  cap: float | None = None,
  dtype: jnp.dtype = jnp.float32,
  interpret: bool = False,
) -> jax.Array:
  """Computes causal attention of the last T of S tokens.

  Args:
    queries: The queries, [B, N, T * G, H] float32; see `attention.folded`.
    kv: The keys [B, N, H, S] and values [B, N, S, H] of all tokens.
    firsts: The first key that each token sees, [T] int32, ascending. None
      stands for 0.
    group: The number of queries that share a key, G.
    cap: The cap of scores; see `architecture.py`.
    dtype: The type of the result.
    interpret: True to run the kernel as plain operations, on any platform.

  Returns:
    The mixed values, [B, N, T * G, H]. Their order in memory is that of
    prompts, tokens, heads and the queries of a head.
  """
  prompts, heads, count, width = queries.shape
  earlier = kv.values[0].shape[2] - count // group
  # Many queries leave too few registers for long steps of converted keys.
  step = decode_kernel.step_keys(kv, jnp.bfloat16.dtype.itemsize)
  exact = kv.values[0].dtype == jnp.float32
  rows = _EXACT_ROWS if exact else _ROWS

  def padded(x: jax.Array, axis: int) -> jax.Array:
    """Returns `x` with zeros that no query sees after its last key."""
    missing = -x.shape[axis] % step
    return jnp.pad(x, [(0, missing * (i == axis)) for i in range(x.ndim)])

  kv = tpu_kernel.KV(
    tuple(padded(x, x.ndim - 1) for x in kv.keys),
    tuple(padded(x, 2) for x in kv.values),
  )
  more = () if firsts is None else (firsts,)
  by_token = queries.reshape(prompts, heads, -1, group, width).swapaxes(1, 2)
  mixed = pl.pallas_call(
    functools.partial(_attend_block, cap, rows, step, earlier),
    grid=(heads, prompts, pl.cdiv(count, rows)),
    out_shape=jax.ShapeDtypeStruct(by_token.shape, dtype),
    compiler_params=triton.CompilerParams(
      num_warps=4 if width <= 64 or exact else 8, num_stages=2
    ),
    interpret=interpret,
    name='attend_prompts',
  )(by_token, kv, *more)
  return mixed.swapaxes(1, 2).reshape(queries.shape)


def _attend_block(
  cap: float | None, rows: int, step: int, earlier: int, queries, kv, *refs
) -> None:
  """Writes the attention of one block of queries of a prompt and a head."""
  *firsts, out = refs
  _, tokens, _, group, width = queries.shape
  head, prompt = pl.program_id(0), pl.program_id(1)
  # The last block takes longest, so it begins first.
  blocks = pl.cdiv(tokens * group, rows)
  begin = (blocks - 1 - pl.program_id(2)) * rows
  row = begin + jnp.arange(rows)
  token, columns = row // group, jnp.arange(decode_kernel.power(width))
  at = (prompt, token[:, None], head, (row % group)[:, None], columns[None])
  mask = (token < tokens)[:, None] & (columns < width)[None]
  x = triton.load(queries.at[at], mask=mask, other=0)
  x = decode_kernel.scaled(x, kv)
  over = functools.partial(
    decode_kernel.sum_steps, cap, x, step, (prompt, head), kv, True
  )
  last = jnp.minimum((begin + rows - 1) // group, tokens - 1)
  own = [triton.load(x.at[token], mask=token < tokens, other=0) for x in firsts]

  def over_masked(begin, end, sums=None) -> decode_kernel.Sums:
    first = begin * step

    def visible(start: jax.Array) -> jax.Array:
      keys = (first + start + jnp.arange(step))[None]
      seen = keys <= earlier + token[:, None]
      for x in own:
        seen &= keys >= x[:, None]
      return seen

    return over(first, end - begin, visible, sums)

  # All queries of the block see the keys of the steps from `low` to `whole`.
  low, whole = 0, (earlier + begin // group + 1) // step
  sums = None
  for ref in firsts:
    low = pl.cdiv(ref[last], step)
    whole = jnp.maximum(low, whole)
    sums = over_masked(ref[begin // group] // step, low)
  sums = over(low * step, whole - low, None, sums)
  sums = over_masked(whole, pl.cdiv(earlier + last + 1, step), sums)
  mixed = (sums.mixed / sums.total[:, None]).astype(out.dtype)
  triton.store(out.at[at], mixed, mask=mask)
