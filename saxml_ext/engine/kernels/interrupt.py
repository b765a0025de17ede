"""Flags that tell a program which runs on the CPU to come to an end."""

import ctypes
import itertools

import jax
import jax.numpy as jnp

from saxml_ext.engine.kernels import kernels

_numbers = itertools.count()


class Flag:
  """A flag of this process; any thread may raise it.

  Attributes:
    number: by which a program knows it.
  """

  def __init__(self) -> None:
    """Takes a flag that is down."""
    self.number = next(_numbers)
    self.set(up=False)

  def set(self, up: bool) -> None:
    """Raises it, or takes it down."""
    kernels.library().SaxmlSetFlag(
      ctypes.c_int64(self.number), ctypes.c_bool(up)
    )


def is_raised(number: jax.Array, step: jax.Array) -> jax.Array:
  """Whether a flag is up now, [] bool; False but on a CPU, without a mesh.

  Args:
    number: [] int32, of the flag.
    step: [] int32, another one at every call, or calls might be merged.
  """
  down = jnp.zeros((), bool)
  if not kernels.usable():
    return down
  call = jax.ffi.ffi_call(
    kernels.IS_RAISED, jax.ShapeDtypeStruct((), jnp.bool_)
  )
  return jax.lax.platform_dependent(
    number, step, cpu=call, default=lambda number, step: down
  )
