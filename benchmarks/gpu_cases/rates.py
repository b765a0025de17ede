"""Measures what the device does at most, through XLA."""

from collections.abc import Callable
import statistics
import time

import jax
import jax.numpy as jnp

# The size of the array to read: far above the caches of any device.
_READ_BYTES = 2**32
_SIDE = 8192
_CALLS, _ROUNDS = 10, 3


def measure(tiny: bool = False) -> dict[str, float]:
  """Returns bytes and operations per second, by name.

  Args:
    tiny: True for sizes that test the program on a CPU.
  """
  count = (2**20 if tiny else _READ_BYTES) // 2
  side = 128 if tiny else _SIDE
  key = jax.random.key(0, impl='rbg')
  # Random bits, because some devices read zeros faster.
  values = jax.jit(lambda k: jax.random.bits(k, (count,), jnp.uint16))(key)
  seconds = _seconds(jnp.max, values)
  result = {'read_bytes_per_s': values.nbytes / seconds}
  values.delete()
  for name, dtype, accumulated in (
    ('bfloat16', jnp.bfloat16, jnp.float32),
    ('int8', jnp.int8, jnp.int32),
    ('fp8', jnp.float8_e4m3fn, jnp.float32),
  ):
    a, b = (
      jax.random.randint(k, (side, side), -100, 100, jnp.int8).astype(dtype)
      for k in jax.random.split(key)
    )

    # The second matrix is transposed, as weights are.
    def product(x: jax.Array, y: jax.Array, out=accumulated) -> jax.Array:
      return jax.lax.dot_general(
        x, y, (((1,), (1,)), ((), ())), preferred_element_type=out
      )

    seconds = _seconds(product, a, b)
    result[f'{name}_operations_per_s'] = 2 * side**3 / seconds
  return result


def _seconds(function: Callable[..., jax.Array], *args: jax.Array) -> float:
  """Returns the median time of a call, without its compilation."""
  run = jax.jit(function)
  jax.block_until_ready(run(*args))
  rounds = []
  for _ in range(_ROUNDS):
    start = time.perf_counter()
    outputs = [run(*args) for _ in range(_CALLS)]
    jax.block_until_ready(outputs[-1])
    rounds.append((time.perf_counter() - start) / _CALLS)
  return statistics.median(rounds)
