"""A model one layer at a time: no more than one is in memory.

Each layer is run by the engine, so its results are the engine's. What this adds
is that hidden states wait between layers, and that the inputs of each matrix
can be seen.
"""

from collections.abc import Callable, Mapping
import dataclasses
import functools
from typing import TypeVar

import jax
import numpy as np

from converters.quantize import sample_texts
from saxml_ext.engine import config as config_lib
from saxml_ext.engine import model
from saxml_ext.engine import variables
from saxml_ext.engine import weights as weights_lib
from saxml_ext.engine.attention import rotary
from saxml_ext.pax import checkpoint
from saxml_ext.pax import errors

_Part = TypeVar('_Part')

# Positions whose logits are computed together: 100 MB at 50,400 tokens.
_POSITIONS = 512


@functools.partial(jax.jit, static_argnums=1)
def run_layer(
  layer: weights_lib.Layer, config: config_lib.ModelConfig, x: jax.Array
) -> tuple[jax.Array, model.Taps]:
  """The engine's layer on hidden states x [B, T, D], padded on the right.

  Returns:
    Its result [B, T, D], and what its matrices were multiplied with, one row
    for each token: `mixed` is [B, T, N * H].
  """
  rotations = rotary.table(x.shape[1], config.rotary_dim, config.rotary_base)
  x, taps = model.run_layer(layer, config, x, rotations)
  mixed = taps.mixed.transpose(0, 2, 1, 3).reshape(*x.shape[:2], -1)
  return x, taps._replace(mixed=mixed)


@functools.partial(jax.jit, static_argnums=1)
def _logits(
  weights: weights_lib.Weights, config: config_lib.ModelConfig, x: jax.Array
) -> jax.Array:
  return model.logits(weights, config, x)


@dataclasses.dataclass(frozen=True)
class LayeredModel:
  """A model on disk.

  Attributes:
    reader: its checkpoint, in float or int8.
    config: its sizes.
    quantization: as of `weights.PaxReader`; None for a float checkpoint.
  """

  reader: checkpoint.Reader
  config: config_lib.ModelConfig
  quantization: str | None = None

  @property
  def _table(self) -> variables.Table:
    return variables.table_of(self.config.architecture)

  def embed(self, texts: sample_texts.Texts) -> list[np.ndarray]:
    """Hidden states [B, T, D] float32 of each batch before the first layer."""
    table = self.reader.read(self._table.by_field['embedding'].path())
    return [table[batch.tokens].astype(np.float32) for batch in texts.batches]

  def read_layer(self, index: int) -> weights_lib.Layer:
    """Reads a layer."""
    names = [n for n in self.reader.specs if variables.layer_of(n) == index]
    return self.layer({name: self.reader.read(name) for name in names}, index)

  def layer(
    self, values: Mapping[str, np.ndarray], index: int
  ) -> weights_lib.Layer:
    """A layer made from its variables.

    Raises:
      errors.CheckpointError: they are not those of such a layer.
    """
    return self._made(values, lambda reader: reader.layer(index))

  def logits(self, x: np.ndarray) -> np.ndarray:
    """Logits [P, V] float32 of hidden states [P, D] after the last layer.

    Raises:
      errors.CheckpointError: the variables behind the layers are not those of
        such a model.
    """
    embedding = self._table.by_field['embedding'].path()
    names = [n for n in self.reader.specs if variables.layer_of(n) is None]
    values = {n: self.reader.read(n) for n in names if n != embedding}

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
      quantization=self.quantization,
      quantize_head=False,
    )
    try:
      return make(reader)
    except ValueError as e:
      raise errors.CheckpointError(f'{self.reader.step_dir}: {e}') from e
