"""Which compiler made what is kept."""

from importlib import metadata

import jax


def version() -> str:
  """The version of XLA's compiler for TPU."""
  return f'libtpu {metadata.version("libtpu")}, JAX {jax.__version__}'
