"""The platform that a program is traced for."""

import jax

# The width of a TPU's registers. If the length of keys and values is not a
# multiple of it, XLA copies them in each program to make it one.
TILE = 128


def platform() -> str:
  """Returns the platform of the devices of the mesh in use.

  Without a mesh, it is that of this process.
  """
  device = jax.sharding.get_abstract_mesh().abstract_device
  return jax.default_backend() if device is None else device.platform
