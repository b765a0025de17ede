"""Chooses the devices that share a model, in one process or in a group."""

import collections
import math

from absl import logging
import jax

from saxml_ext.common import errors
from saxml_ext.engine import config as config_lib
from saxml_ext.engine import sharding
from saxml_ext.params import settings as settings_lib


def choose(
  model_path: str,
  model: config_lib.ModelConfig,
  settings: settings_lib.Settings,
) -> jax.sharding.Mesh | None:
  """Returns the mesh of the devices of a model; None for the default device.

  A single process with too few devices runs the model on one device. A group of
  processes must have the requested devices.

  Args:
    model_path: The model path, for messages.
    model: The sizes of the model.
    settings: The settings of the model, with the mesh shape and the slots.

  Raises:
    errors.InvalidArgument: The mesh does not divide the model's sizes, or the
      hosts of a group would not have equal numbers of its devices.
  """
  shape = settings.mesh_shape
  size = math.prod(shape)
  devices = jax.devices()
  if jax.process_count() > 1:
    devices = _even(model_path, shape, devices)
  elif size > len(devices):
    logging.warning(
      '%s is configured for %d devices (ICI_MESH_SHAPE), but runs on one here',
      model_path,
      size,
    )
    shape, size = (1, 1, 1), 1
  if size == 1 and devices[0].platform != 'tpu':
    return None
  try:
    mesh = sharding.make_mesh(shape, devices)
    sharding.check(mesh, model, settings.engine.num_slots)
  except ValueError as e:
    raise errors.InvalidArgument(
      f'{model_path}: ICI_MESH_SHAPE={list(shape)} cannot be used for this'
      f' model: {e}'
    ) from e
  logging.info('%s is split over devices as %s', model_path, dict(mesh.shape))
  return mesh


def _even(
  model_path: str, shape: tuple[int, ...], devices: list[jax.Device]
) -> list[jax.Device]:
  """Returns equal numbers of devices of each process, for the mesh."""
  size = math.prod(shape)
  counts = collections.Counter(device.process_index for device in devices)
  hosts = len(counts)
  share = size // hosts
  if size % hosts or share > min(counts.values()):
    numbers = ', '.join(str(counts[host]) for host in sorted(counts))
    most = min(counts.values()) * hosts
    raise errors.InvalidArgument(
      f'{model_path}: ICI_MESH_SHAPE={list(shape)} has {size} devices, but'
      f' this group has {hosts} hosts with {numbers} devices. Each host must'
      " have the same number of the mesh's devices. Publish with"
      f' ICI_MESH_SHAPE=[1, 1, {most}], or another shape of {most} devices.'
    )
  if size < len(devices):
    logging.warning(
      '%s uses %d of the %d devices of this group (ICI_MESH_SHAPE)',
      model_path,
      size,
      len(devices),
    )
  chosen = []
  for host in sorted(counts):
    own = [device for device in devices if device.process_index == host]
    chosen += own[:share]
  return chosen
