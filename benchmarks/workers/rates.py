"""Measures the work of a CPU second: bytes read, and products computed.

Each rate is the best of several methods, so that lower bounds based on it hold.
"""

from collections.abc import Callable
import time

import jax
import jax.numpy as jnp
import numpy as np

from saxml_ext.engine.kernels import kernels

_REPEATS = 5
_LEAST_SECONDS = 0.05
# No more trials start after this time, because large products take seconds.
_ENOUGH_SECONDS = 2.0
# No core's cache is this large, and reading more is not slower.
_LARGEST_READ = 1 << 29


def read(size: int) -> float:
  """Returns the bytes per CPU second when a buffer of `size` is read.

  The buffer is read repeatedly. If it fits a cache, it is read from there, as
  weights are.
  """
  values = np.ones(max(1, min(size, _LARGEST_READ) // 4), np.float32)
  array = jnp.asarray(values)
  total = jax.jit(jnp.sum)
  ways = [
    lambda: total(array).block_until_ready(),
    lambda: values.sum(),
    lambda: np.dot(values, values),
  ]
  return values.nbytes / min(map(_seconds, ways))


def products(dtype: str, rows: int, width: int, outputs: int) -> float:
  """Returns operations per CPU second of [rows, width] x [outputs, width].

  Sums are int32 for int8, otherwise float32. A multiplication and an addition
  count as two operations.
  """
  x = jnp.ones((rows, width), dtype)
  w = jnp.ones((outputs, width), dtype)
  kind = jnp.int32 if dtype == 'int8' else jnp.float32

  def dot(axis: int):
    return jax.jit(
      lambda a, b: jax.lax.dot_general(
        a, b, (((1,), (axis,)), ((), ())), preferred_element_type=kind
      )
    )

  stored, turned = dot(1), dot(0)
  w_turned = jnp.asarray(np.asarray(w).T.copy())
  ways = [
    lambda: stored(x, w).block_until_ready(),
    lambda: turned(x, w_turned).block_until_ready(),
  ]
  if dtype == 'int8' and kernels.can_multiply():
    multiply = jax.jit(kernels.multiply)
    floats, ones = x.astype(jnp.float32), jnp.ones(outputs)
    ways.append(lambda: multiply(floats, w, ones, ones).block_until_ready())
  if dtype == 'float32':
    a, b = np.asarray(x), np.asarray(w).T
    ways.append(lambda: a @ b)
  return 2.0 * rows * width * outputs / min(map(_seconds, ways))


def _seconds(work: Callable[[], object]) -> float:
  """Returns the CPU seconds of one call, the minimum of several trials."""
  began = time.process_time()
  work()
  if (first := time.process_time() - began) > _ENOUGH_SECONDS:
    return first  # Compiling hardly matters here.
  best, calls = float('inf'), 1
  enough = time.process_time() + _ENOUGH_SECONDS
  for _ in range(_REPEATS):
    while True:
      began = time.process_time()
      for _ in range(calls):
        work()
      spent = time.process_time() - began
      if spent >= _LEAST_SECONDS:
        break
      calls *= 2
    best = min(best, spent / calls)
    if time.process_time() > enough:
      break
  return best
