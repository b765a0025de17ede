"""Computes causal attention of prompts, with a kernel on a GPU or with XLA."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from saxml_ext.engine import logical
from saxml_ext.engine.attention import attention
from saxml_ext.engine.attention import cache
from saxml_ext.engine.attention import decode_attention
from saxml_ext.engine.kernels.gpu import prefill_kernel


def attend(
  queries: jax.Array,
  keys: cache.KV,
  values: cache.KV,
  past: Sequence[attention.Source | attention.Earlier] = (),
  cap: float | None = None,
  dtype: jnp.dtype = jnp.float32,
  firsts: jax.Array | None = None,
) -> jax.Array:
  """Computes what `attention.attend_causal` does, on one GPU with its kernel.

  The kernel has no derivative.

  Args:
    queries: The queries, [B, N, T * G, H] float32.
    keys: The keys, [B, N, H, T].
    values: The values, [B, N, T, H].
    past: The keys and values before these.
    cap: The cap of scores.
    dtype: The type of the kernel's result.
    firsts: The first key that each token sees, as in `attend_causal`.
  """
  sources = [s for s in past if isinstance(s, attention.Source)]
  one_gpu = (
    logical.platform() == 'gpu' and jax.sharding.get_abstract_mesh().empty
  )
  if not one_gpu or len(sources) < len(past):
    return attention.attend_causal(
      queries, keys, values, past, cap=cap, firsts=firsts
    )
  length = jax.tree.leaves(keys)[0].shape[-1]
  keys = jax.tree.map(
    lambda *x: jnp.concatenate(x, -1), *[s.keys for s in sources], keys
  )
  values = jax.tree.map(
    lambda *x: jnp.concatenate(x, 2), *[s.values for s in sources], values
  )
  return prefill_kernel.attend(
    queries,
    decode_attention.operands(cache.Block(keys, values)),
    firsts,
    queries.shape[2] // length,
    cap,
    dtype,
    decode_attention.is_interpreted(),
  )
