"""The model of test params, whose weights are made up instead of read.

Sax publishes params for tests with a checkpoint called `None`: a model of the
published sizes can be served, and its speed measured, without weights of 175
billion numbers being stored anywhere. Each process makes up what its devices
hold; the same seed gives the same model on any number of hosts.
"""

from collections.abc import Iterator
import contextlib

import jax

from saxml_ext.common import errors
from saxml_ext.engine import abstract_weights
from saxml_ext.engine import config as config_lib
from saxml_ext.engine import weights as weights_lib
from saxml_ext.engine.parallel import random_variables
from saxml_ext.engine.parallel import split_weights
from saxml_ext.params import settings as settings_lib
from saxml_ext.server.random_weights import room

_SEED = 0


def is_meant(checkpoint_path: str) -> bool:
  """Whether a checkpoint's path stands for random weights."""
  return checkpoint_path in ('', 'None')


class RandomModel:
  """In place of a checkpoint, see `stored_model.StoredModel`."""

  def __init__(self, model_path: str):
    """Makes up nothing yet.

    Args:
      model_path: registered name of the serving params, for messages.
    """
    self._model_path = model_path

  def config(self, settings: settings_lib.Settings) -> config_lib.ModelConfig:
    """Sizes of the model.

    Args:
      settings: of the serving params, with rotary_dim and ln_epsilon.

    Raises:
      errors.InvalidArgument: the params leave a size open, or the sizes make
        no model.
    """
    with self._told():
      config = settings.model_config()
    if config.num_heads * config.head_dim != config.model_dim:
      raise errors.InvalidArgument(
        f'{self._model_path}: NUM_HEADS={config.num_heads} times'
        f' DIMS_PER_HEAD={config.head_dim} is not'
        f' MODEL_DIMS={config.model_dim}'
      )
    return config

  def weights(
    self,
    config: config_lib.ModelConfig,
    settings: settings_lib.Settings,
    device: jax.Device | None,
  ) -> weights_lib.Weights:
    """Makes up the weights.

    Args:
      config: of `config`.
      settings: of the serving params.
      device: where the weights are put; None leaves it to JAX.

    Raises:
      errors.InvalidArgument: they cannot be made as the params ask, or do not
        fit.
    """
    form = settings.dtype, settings.quantization, settings.quantize_head
    room.check(self._model_path, abstract_weights.unrolled(config, *form))
    variables = _variables(config, settings.quantization)
    with self._told(), jax.default_device(device):
      return weights_lib.from_pax(variables, config, *form)

  def split(
    self,
    config: config_lib.ModelConfig,
    form: split_weights.Form,
    mesh: jax.sharding.Mesh,
  ) -> weights_lib.Weights:
    """Makes up what the devices of this process hold of the weights.

    Args:
      config: of `config`.
      form: of the weights.
      mesh: the devices.

    Raises:
      errors.InvalidArgument: as `weights`.
    """
    room.check(self._model_path, split_weights.structs(config, form, mesh))
    host = jax.local_devices(backend='cpu')[0]
    variables = _variables(config, form.quantization)
    with self._told(), jax.default_device(host):
      return split_weights.from_pax(variables, config, form, mesh)

  def fingerprint(self) -> str:
    """Tells these weights from others; the sizes are told elsewhere."""
    return f'random weights, seed {_SEED}'

  @contextlib.contextmanager
  def _told(self) -> Iterator[None]:
    """Makes of what is wrong with a variable an error for users."""
    try:
      yield
    except ValueError as e:
      raise errors.InvalidArgument(f'{self._model_path}: {e}') from e


def _variables(
  config: config_lib.ModelConfig, quantization: str | None
) -> random_variables.RandomVariables:
  return random_variables.RandomVariables(config, _SEED, quantization)
