"""Collects statistics of the inputs of each matrix on calibration texts.

The hidden states of all texts pass through the float model layer by layer, so
the statistics do not depend on quantized layers.
"""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np

from converters.quantize import int8_matrix
from converters.quantize import models
from converters.quantize import sample_texts
from saxml_ext.engine import architecture


class Calibration:
  """The hidden states of texts on their way through the layers."""

  def __init__(
    self, model: models.Model, texts: sample_texts.Texts, hessian_inputs: int
  ):
    """Embeds the texts.

    Args:
      model: The float model.
      texts: The calibration texts.
      hessian_inputs: The maximum number of inputs of a matrix for which the
        Hessian is computed.
    """
    self._model = model
    self._texts = texts
    self._hessian_inputs = hessian_inputs
    self._hidden = model.embed(texts)
    self._index = 0

  def next_layer(
    self, variables: Mapping[str, np.ndarray]
  ) -> dict[str, int8_matrix.InputStats]:
    """Runs the next layer on all texts.

    Args:
      variables: The variables of that layer.

    Returns:
      The statistics by field name of `engine.model.Taps`.
    """
    layer = self._model.layer(variables, self._index)
    sums: dict[str, _Sums] = {}
    residual = self._model.config.architecture.residual
    shared = residual == architecture.SHARED
    for i, batch in enumerate(self._texts.batches):
      x, inputs = self._model.run_layer(layer, self._hidden[i], self._index)
      self._hidden[i] = np.asarray(x)
      for name, values in inputs._asdict().items():
        if name == 'fed' and shared:
          continue
        if name not in sums:
          size = values.shape[-1]
          sums[name] = _Sums(size, size <= self._hessian_inputs)
        sums[name].add(values, batch.real)
    self._index += 1
    stats = {n: s.stats(self._texts.num_tokens) for n, s in sums.items()}
    return {'fed': stats['norm'], **stats}


class _Sums:
  """Running sums over the texts."""

  def __init__(self, size: int, with_hessian: bool):
    self._peak = np.zeros(size, np.float32)
    self._squares = np.zeros(size)
    self._products = (
      np.zeros((size, size), np.float32) if with_hessian else None
    )

  def add(self, values: jax.Array, real: np.ndarray) -> None:
    values = jnp.where(real[..., None], values, 0).reshape(-1, len(self._peak))
    self._peak = np.maximum(self._peak, jnp.abs(values).max(0))
    self._squares += np.asarray(jnp.square(values).sum(0))
    if self._products is not None:
      self._products += np.asarray(
        jnp.matmul(values.T, values, precision=jax.lax.Precision.HIGHEST)
      )

  def stats(self, count: int) -> int8_matrix.InputStats:
    if self._products is not None:
      self._products /= np.float32(count)
    return int8_matrix.InputStats(
      self._peak, (self._squares / count).astype(np.float32), self._products
    )
