"""Builds a model as a server would load it, without its checkpoint.

Programs are compiled ahead of time with shapes in place of weights. The shapes
are those of a checkpoint on the model server's devices: read, stacked, padded
and split (`server/loading/loader.py`). A test in `tests/` compares the two.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import functools
from typing import Any

import jax

from saxml_ext.common import errors
from saxml_ext.engine import abstract_weights
from saxml_ext.engine import executables
from saxml_ext.engine import logical
from saxml_ext.engine import platform_configs
from saxml_ext.engine import sharding
from saxml_ext.engine import state
from saxml_ext.engine import weights as weights_lib
from saxml_ext.params import overrides as overrides_lib
from saxml_ext.params import registry
from saxml_ext.params import settings as settings_lib
from saxml_ext.params import template

# The loader uses the same value if neither the params nor a checkpoint set one.
_LN_EPSILON = 1e-5


@dataclasses.dataclass(frozen=True)
class AbstractModel:
  """The model that programs are compiled for.

  Attributes:
    settings: The settings of the engine's programs.
    weights: The weights as jax.ShapeDtypeStruct: stacked and padded for the
      mesh, or unrolled for a GPU.
    mesh: The devices; None for a GPU.
    xla_flags: The XLA_TPU_FLAGS of the serving params.
    gpu: The GPU, which need not be present; None with a mesh.
  """

  settings: state.Settings
  weights: weights_lib.Weights
  mesh: jax.sharding.Mesh | None
  xla_flags: Mapping[str, str]
  gpu: jax.Device | None = None

  def executables(self) -> executables.Executables:
    """Returns the programs, before they are compiled."""
    if self.gpu is not None:
      return GpuExecutables(self.settings, self.weights, self.gpu)
    return executables.Executables(self.settings, self.weights, self.mesh)


class GpuExecutables(executables.Executables):
  """The programs of a model on one GPU that need not be present."""

  def __init__(
    self,
    settings: state.Settings,
    weights: weights_lib.Weights,
    gpu: jax.Device,
  ):
    """Creates the table of programs, see `executables.Executables`.

    Args:
      settings: The static settings.
      weights: The shapes of the unrolled weights.
      gpu: The GPU to compile for.
    """
    super().__init__(settings, weights)
    self._placement = jax.sharding.SingleDeviceSharding(gpu)

  def signature(self, key: executables.Key) -> executables.Signature:
    """Returns a signature whose arguments are on the GPU."""
    signature = super().signature(key)

    def on_gpu(x: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
      return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=self._placement)

    return signature._replace(args=jax.tree.map(on_gpu, signature.args))

  def jitted(self, key: executables.Key) -> jax.stages.Wrapped:
    """Returns a program's function, which is traced for a GPU."""
    function, _, _, donated = key.program(self._shapes)

    # A partial function has no name of its own.
    @functools.wraps(getattr(function, 'func', function))
    def targeted(*args: Any) -> Any:
      with logical.targeting('gpu'):
        return function(*args)

    return jax.jit(targeted, donate_argnums=donated)


def from_params(
  model_path: str,
  overrides: Mapping[str, str],
  devices: Sequence[jax.Device] | jax.sharding.AbstractMesh,
) -> AbstractModel:
  """Returns the model that a server with these devices would load.

  Args:
    model_path: The registered name of serving params that fix the model's
      sizes.
    overrides: The attributes of the params and their values as JSON, as in a
      publish.
    devices: The available devices. The model uses the first ones, as many as
      ICI_MESH_SHAPE has, or one GPU. An abstract mesh is enough to lower
      programs.

  Raises:
    errors.InvalidArgument: The params do not exist, they leave a value to the
      checkpoint, or the mesh does not divide the model.
    errors.Unimplemented: The params ask for a feature that the engine lacks.
  """
  params: type[template.ServableLMParams] = overrides_lib.apply(
    registry.lookup(model_path), overrides
  )
  try:
    settings = settings_lib.Settings.from_params(params)
    if settings.ln_epsilon is None:
      settings = dataclasses.replace(settings, ln_epsilon=_LN_EPSILON)
    model = settings.model_config()
    if settings.engine.eos_id is None:
      raise ValueError('EOS_ID is not set. Override it.')
    mesh: Any = devices
    if not isinstance(devices, jax.sharding.AbstractMesh):
      if devices[0].platform == 'gpu':
        return _on_gpu(settings, devices[0])
      mesh = sharding.make_mesh(settings.mesh_shape, devices)
    sharding.check(mesh, model, settings.engine.num_slots)
  except (TypeError, ValueError) as e:
    raise errors.InvalidArgument(f'{model_path}: {e}') from e
  form = settings.dtype, settings.quantization, settings.quantize_head
  weights = abstract_weights.shapes(model, *form, stacked=True)
  return AbstractModel(
    state.Settings(
      model, platform_configs.tiled(settings.engine, sharding.slot_parts(mesh))
    ),
    jax.eval_shape(lambda w: sharding.pad(mesh, w), weights),
    mesh,
    dict(params.XLA_TPU_FLAGS),
  )


def _on_gpu(
  settings: settings_lib.Settings, device: jax.Device
) -> AbstractModel:
  """Returns the model that a server with one GPU would load."""
  model = settings.model_config()
  engine = platform_configs.on_gpu(
    platform_configs.without_context(settings.engine)
  )
  form = settings.dtype, settings.quantization, settings.quantize_head
  weights = abstract_weights.shapes(model, *form)
  return AbstractModel(state.Settings(model, engine), weights, None, {}, device)
