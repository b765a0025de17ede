"""Which platform a program is traced for."""

import jax


def platform() -> str:
  """Of the devices of the mesh in use; without one, of this process's."""
  device = jax.sharding.get_abstract_mesh().abstract_device
  return jax.default_backend() if device is None else device.platform
