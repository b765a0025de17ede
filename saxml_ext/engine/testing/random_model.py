"""Random GPT-J variables under their PAX names, for tests and benchmarks."""

import math

import numpy as np

from saxml_ext.engine import config as config_lib
from saxml_ext.engine import variables as variables_lib


def variables(
  config: config_lib.GPTJConfig, seed: int = 0, scale: float = 1.0
) -> dict[str, np.ndarray]:
  """Every variable of a model, float32.

  Args:
    config: sizes.
    seed: of the generator.
    scale: factor of the head's weights; larger makes surer predictions.
  """
  rng = np.random.default_rng(seed)
  sizes = variables_lib.axis_sizes(config)

  def draw(row: variables_lib.Variable) -> np.ndarray:
    shape = row.shape(config)
    if len(shape) == 1:
      mean = 1 if row.is_norm_scale and config.ln_direct_scale else 0
      return rng.normal(mean, 0.1, shape).astype(np.float32)
    spread = math.prod(sizes[axis] for axis in row.contracted) ** -0.5
    if row.field == 'head':
      spread *= scale
    return rng.normal(0, spread, shape).astype(np.float32)

  # Tests know the models of some seeds: what is outside of layers comes first.
  order = sorted(
    variables_lib.GPTJ.of_model(config), key=lambda pair: pair[0].per_layer
  )
  return {row.path(layer): draw(row) for row, layer in order}
