"""Generates random variables with PAX names, for tests and benchmarks."""

from collections.abc import Mapping
import dataclasses
import math
from typing import Any

import numpy as np

from saxml_ext.engine import architecture as architecture_lib
from saxml_ext.engine import config as config_lib
from saxml_ext.engine import variables as variables_lib


def lm_cloud(
  architecture: architecture_lib.Architecture = architecture_lib.LM_CLOUD,
  **sizes: Any,
) -> config_lib.ModelConfig:
  """Returns an LmCloudSpmd model with layer norms as in praxis."""
  return config_lib.ModelConfig(
    **sizes,
    rotary_dim=0,
    ln_epsilon=1e-6,
    ln_direct_scale=False,
    architecture=architecture,
  )


def variables(
  config: config_lib.ModelConfig, seed: int = 0, scale: float = 1.0
) -> dict[str, np.ndarray]:
  """Returns every variable of a model in float32.

  Args:
    config: The configuration of the model, which gives the sizes.
    seed: The seed of the generator.
    scale: The factor of the head's weights. A larger factor gives more certain
      predictions.
  """
  rng = np.random.default_rng(seed)
  sizes = variables_lib.axis_sizes(config)
  table = variables_lib.table_of(config.architecture)

  def draw(row: variables_lib.Variable) -> np.ndarray:
    shape = row.shape(config)
    if len(shape) == 1:
      mean = 1 if row.is_norm_scale and config.ln_direct_scale else 0
      return rng.normal(mean, 0.1, shape).astype(np.float32)
    spread = math.prod(sizes[axis] for axis in row.contracted) ** -0.5
    if row.field == 'embedding' and config.architecture.tied_head:
      spread = scale * config.model_dim**-0.5
    if row.field == 'head':
      spread *= scale
    return rng.normal(0, spread, shape).astype(np.float32)

  # Tests depend on the models of some seeds, so variables outside layers come
  # first.
  order = sorted(table.entries(config), key=lambda pair: pair[0].per_layer)
  return {row.path(layer): draw(row) for row, layer in order}


def repeated(
  variables: Mapping[str, np.ndarray], config: config_lib.ModelConfig
) -> dict[str, np.ndarray]:
  """Returns the same variables as praxis stores them with repeated layers."""
  result = {}
  table = variables_lib.table_of(config.architecture)
  for row in table.stored(variables_lib.is_joined(variables)):
    name = f'{variables_lib.PREFIX}.{row.below_prefix(repeated=True)}'
    if row.per_layer:
      own = [variables[row.path(i)] for i in range(config.num_layers)]
      result[name] = np.stack(own)
    else:
      result[name] = variables[name]
  return result


@dataclasses.dataclass(frozen=True)
class Arrays:
  """A source of `split_weights`: arrays that serve as their own specs."""

  specs: Mapping[str, np.ndarray]

  def read_part(self, name: str, slices: tuple[slice, ...]) -> np.ndarray:
    """Reads a part of one array; see `split_weights.Source.read_part`."""
    return self.specs[name][slices]
