"""Models of test params, which have random weights instead of a checkpoint.

Sax publishes test params with the checkpoint `None`. So a model of the
published sizes can be served and its speed measured without stored weights, for
example for 175 billion parameters. Each process creates the weights of its own
devices. The same seed gives the same model on any number of hosts.

The size of random weights is checked first. They can be requested in any size
with one command, even on a laptop. Without the check, the operating system
would end the model server when memory runs out.
"""

import math
from typing import Any

import jax

from saxml_ext.common import errors
from saxml_ext.engine import config as config_lib
from saxml_ext.engine import weights as weights_lib
from saxml_ext.engine.parallel import random_variables
from saxml_ext.params import settings as settings_lib
from saxml_ext.server import platforms
from saxml_ext.server.loading import stored_model

_SEED = 0
_GIB = 2**30
# A remedy for messages, after "publish with" or similar words.
SMALLER = (
  'a smaller model (override NUM_LAYERS, MODEL_DIMS, NUM_HEADS and HIDDEN_DIMS)'
)


def is_meant(checkpoint_path: str) -> bool:
  """Returns True if a checkpoint's path stands for random weights."""
  return checkpoint_path in ('', 'None')


class RandomModel(stored_model.Source):
  """Random weights in place of a checkpoint."""

  def __init__(self, model_path: str):
    """Creates the object without creating weights.

    Args:
      model_path: The registered name of the serving params, for messages.
    """
    self._model_path = model_path

  def config(self, settings: settings_lib.Settings) -> config_lib.ModelConfig:
    """Returns the sizes of the model.

    Raises:
      errors.InvalidArgument: The params do not set a size, or the sizes do not
        make a model.
    """
    with self._refusing():
      config = settings.model_config()
    if config.num_heads * config.head_dim != config.model_dim:
      raise errors.InvalidArgument(
        f'{self._model_path}: NUM_HEADS={config.num_heads} times'
        f' DIMS_PER_HEAD={config.head_dim} is not'
        f' MODEL_DIMS={config.model_dim}'
      )
    return config

  def variables(
    self, config: config_lib.ModelConfig, quantization: str | None
  ) -> Any:
    """Returns variables that are created when they are looked up."""
    return random_variables.RandomVariables(config, _SEED, quantization)

  def fingerprint(self) -> str:
    """Returns a text that identifies these weights, except for their sizes."""
    return f'random weights, seed {_SEED}'

  def refused(self, error: Exception) -> errors.InvalidArgument:
    """Returns an error for users, see `Source`."""
    return errors.InvalidArgument(f'{self._model_path}: {error}')

  def check_room(self, shapes: weights_lib.Weights) -> None:
    """Raises errors.InvalidArgument if weights of these shapes do not fit."""
    check(self._model_path, shapes)


def check(model_path: str, shapes: Any) -> None:
  """Refuses weights that are larger than the free memory.

  Args:
    model_path: The name of the serving params, for the message.
    shapes: A tree of jax.ShapeDtypeStruct. Arrays without a sharding go to one
      device.

  Raises:
    errors.InvalidArgument: This process's part of the weights does not fit.
  """
  leaves = jax.tree.leaves(shapes)
  needed = size(shapes)
  free = platforms.memory_bytes()
  devices = jax.local_devices()
  if all(leaf.sharding is None for leaf in leaves) and _have_own(devices):
    free //= len(devices)
  if needed > free:
    raise errors.InvalidArgument(
      f'{model_path}: random weights of these sizes take {needed / _GIB:,.1f}'
      f' GiB, but this host has only {free / _GIB:,.1f} GiB free. Use more'
      f' devices or hosts (ICI_MESH_SHAPE), or publish {SMALLER}.'
    )


def size(shapes: Any) -> int:
  """Returns the total bytes of arrays on all devices of this process.

  Args:
    shapes: A tree of jax.ShapeDtypeStruct.
  """
  return sum(map(_bytes, jax.tree.leaves(shapes)))


def _bytes(leaf: jax.ShapeDtypeStruct) -> int:
  """Returns the total bytes of an array on all devices of this process."""
  shape, copies = leaf.shape, 1
  if leaf.sharding is not None:
    shape = leaf.sharding.shard_shape(leaf.shape)
    copies = len(leaf.sharding.addressable_devices)
  return math.prod(shape) * leaf.dtype.itemsize * copies


def _have_own(devices: list[jax.Device]) -> bool:
  """Returns True if each device has its own memory, unlike CPUs."""
  return devices[0].platform != 'cpu'
