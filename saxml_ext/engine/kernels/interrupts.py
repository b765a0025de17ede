"""Lets a running program on the CPU check whether it has to stop."""

import ctypes
import itertools

import jax
import jax.numpy as jnp

from saxml_ext.engine.kernels import kernels

_numbers = itertools.count()


class Flag:
  """A flag of this process that stops a program on the CPU.

  Any thread may raise it.

  Attributes:
    number: The number that identifies the flag in a program.
  """

  def __init__(self) -> None:
    """Creates a flag that is not raised."""
    self.number = next(_numbers)
    self.set(up=False)

  def set(self, up: bool) -> None:
    """Raises or lowers the flag.

    Args:
      up: True to raise it.
    """
    if built := kernels.library():  # Only programs on the CPU have flags.
      built.SaxmlSetFlag(ctypes.c_int64(self.number), ctypes.c_bool(up))


def is_raised(number: jax.Array, step: jax.Array) -> jax.Array:
  """Returns True if a flag is raised now, [] bool.

  The result is always False except on a single CPU device.

  Args:
    number: The number of the flag, [] int32.
    step: A number that differs in every call, [] int32. Without it XLA might
      merge the calls.
  """
  down = jnp.zeros((), bool)
  call = jax.ffi.ffi_call(
    'saxml_is_raised', jax.ShapeDtypeStruct((), jnp.bool_)
  )
  return kernels.choose(call, lambda number, step: down, number, step)
