"""Opens PAX checkpoints as models, and runs them one layer at a time.

The engine runs each layer, so the results are those of the engine. Hidden
states are kept between layers. So only one layer is in memory at a time, and
the inputs of each matrix can be observed.
"""

from collections.abc import Callable, Mapping
import dataclasses
import functools
import os
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from converters.quantize import input_checkpoint
from converters.quantize import sample_texts
from saxml_ext.common import errors as common_errors
from saxml_ext.engine import architecture as architecture_lib
from saxml_ext.engine import config as config_lib
from saxml_ext.engine import model as model_lib
from saxml_ext.engine import rotary
from saxml_ext.engine import variables
from saxml_ext.engine import weights as weights_lib
from saxml_ext.pax import checkpoint
from saxml_ext.pax import description as description_lib
from saxml_ext.pax import errors

_Part = TypeVar('_Part')

# The number of positions whose logits are computed at once. They need 100 MB at
# 50,400 tokens.
_POSITIONS = 512
_ROTARY_BASE = config_lib.ModelConfig.rotary_base
# The entries of gptj_config.json that running a model needs, in addition to the
# shapes of its variables.
_NEEDED = ('rotary_dim', 'ln_epsilon', 'max_positions', 'eos_id')


@functools.partial(jax.jit, static_argnums=1)
def _run_layer(
  layer: weights_lib.Layer,
  config: config_lib.ModelConfig,
  x: jax.Array,
  index: int,
) -> tuple[jax.Array, model_lib.Taps]:
  rotations = rotary.table(
    x.shape[1], config.rotary_dim, config.rotary_base, config.rotary_scaling
  )
  x, taps = model_lib.run_layer(layer, config, x, rotations, index)
  mixed = taps.mixed.transpose(0, 2, 1, 3).reshape(*x.shape[:2], -1)
  return x, taps._replace(mixed=mixed)


@functools.partial(jax.jit, static_argnums=1)
def _logits(
  weights: weights_lib.Weights, config: config_lib.ModelConfig, x: jax.Array
) -> jax.Array:
  return model_lib.logits(weights, config, x)


@dataclasses.dataclass(frozen=True)
class Model:
  """A model on disk.

  Attributes:
    reader: The checkpoint, in float or int8.
    config: The sizes of the model.
    end_ids: The tokens that end a text.
    max_positions: The maximum sequence length of the model in tokens.
    quantization: The quantization to run the model with, as for
      `weights.PaxReader`. None for a float checkpoint.
    dtype: The type of the weights that are not quantized.
  """

  reader: checkpoint.Reader
  config: config_lib.ModelConfig
  end_ids: tuple[int, ...]
  max_positions: int
  quantization: str | None = None
  dtype: str = 'float32'

  def run_as(self, quantization: str | None, dtype: str = 'float32') -> 'Model':
    """Returns a copy of the model that runs with other number formats."""
    return dataclasses.replace(self, quantization=quantization, dtype=dtype)

  @property
  def _embedding(self) -> str:
    table = variables.table_of(self.config.architecture)
    return table.by_field['embedding'].path()

  def embed(self, texts: sample_texts.Texts) -> list[np.ndarray]:
    """Returns the first layer's inputs, [B, T, D] float32 for each batch."""
    table = self.reader.read(self._embedding).astype(jnp.dtype(self.dtype))
    factor = np.float32(self.config.details.embedding)
    return [
      table[batch.tokens].astype(np.float32) * factor for batch in texts.batches
    ]

  def read_layer(self, index: int) -> weights_lib.Layer:
    """Reads a layer."""
    names = [n for n in self.reader.specs if variables.layer_of(n) == index]
    return self.layer({name: self.reader.read(name) for name in names}, index)

  def layer(
    self, values: Mapping[str, np.ndarray], index: int
  ) -> weights_lib.Layer:
    """Builds a layer from its variables.

    Args:
      values: The variables of the layer by name.
      index: The index of the layer.

    Raises:
      errors.CheckpointError: The variables are not those of such a layer.
    """
    return self._made(values, lambda reader: reader.layer(index))

  def run_layer(
    self, layer: weights_lib.Layer, x: np.ndarray, index: int
  ) -> tuple[jax.Array, model_lib.Taps]:
    """Runs a layer on hidden states.

    Args:
      layer: The layer.
      x: The hidden states [B, T, D], padded on the right.
      index: The index of the layer.

    Returns:
      The result [B, T, D] and the inputs of the layer's matrices, with one row
      for each token: `mixed` is [B, T, N * H].
    """
    return _run_layer(layer, self.config, x, index)

  def logits(self, x: np.ndarray) -> np.ndarray:
    """Returns the logits [P, V] float32 of hidden states.

    Args:
      x: The results of the last layer, [P, D].

    Raises:
      errors.CheckpointError: The variables after the layers are not those of
        such a model.
    """
    names = [n for n in self.reader.specs if variables.layer_of(n) is None]
    values = {n: self.reader.read(n) for n in names if n != self._embedding}

    def leaf(reader: weights_lib.PaxReader, field: str):
      return None if field == 'embedding' else reader.leaf(field)

    weights = self._made(
      values,
      lambda reader: weights_lib.assemble(
        functools.partial(leaf, reader), layers=()
      ),
    )
    parts = range(0, len(x), _POSITIONS)
    return np.concatenate(
      [_logits(weights, self.config, x[i : i + _POSITIONS]) for i in parts]
    )

  def _made(
    self,
    values: Mapping[str, np.ndarray],
    make: Callable[[weights_lib.PaxReader], _Part],
  ) -> _Part:
    reader = weights_lib.PaxReader(
      values,
      self.config,
      self.dtype,
      quantization=self.quantization,
      quantize_head=False,
    )
    try:
      return make(reader)
    except ValueError as e:
      raise errors.CheckpointError(f'{self.reader.step_dir}: {e}') from e


def open_model(path: str) -> Model:
  """Opens a checkpoint in order to run it.

  Args:
    path: The directory of the checkpoint, as `input_checkpoint.root_of` accepts
      it.

  Raises:
    errors.CheckpointError: The checkpoint is incomplete or not a known model,
      or its gptj_config.json is missing or lacks a required entry.
  """
  reader = checkpoint.Reader(path)
  try:
    description = description_lib.read(reader.step_dir)
    needed = {name: getattr(description, name) for name in _NEEDED}
    missing = [name for name, value in needed.items() if value is None]
    if missing:
      raise ValueError(f'{", ".join(missing)} is not set')
    family = input_checkpoint.family_of(reader)
    config = config_lib.ModelConfig.from_pax(
      reader.specs,
      needed['rotary_dim'],
      rotary_base=description.rotary_base or _ROTARY_BASE,
      rotary_scaling=description.rotary_scaling,
      ln_epsilon=needed['ln_epsilon'],
      ln_direct_scale=family.ln_direct_scale,
      architecture=family.architecture,
      details=description.details or architecture_lib.Details(),
    )
  except (OSError, common_errors.SaxError, ValueError) as e:
    file = os.path.join(reader.directory, description_lib.FILE_NAME)
    raise errors.CheckpointError(
      f'{file} and the variables next to it do not describe a valid model'
      f' ({e}). Convert the checkpoint with convert_hf. If eos_id is missing,'
      ' add eos_token_id to config.json first.'
    ) from e
  end_ids = tuple(description.stop_ids or [needed['eos_id']])
  return Model(reader, config, end_ids, needed['max_positions'])
