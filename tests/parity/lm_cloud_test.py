"""The engine's LmCloudSpmd is paxml's own LmCloudSpmdTest, run by praxis."""

import functools

from absl.testing import absltest
from absl.testing import parameterized
import jax
import numpy as np

from saxml_ext.engine import config as config_lib
from saxml_ext.engine import model as model_lib
from saxml_ext.engine import weights as weights_lib
from saxml_ext.engine.testing import fast_compile
from saxml_ext.engine.testing import random_model
from saxml_ext.pax import gptj_model
from saxml_ext.pax.compat import paxml_compat

paxml_compat.install()

# paxml and praxis can be imported once they have been prepared.
# isort: split
from paxml.tasks.lm.params import lm_cloud
from praxis import base_layer
from praxis.layers import models

fast_compile.install()

_CONFIG = config_lib.lm_cloud(
  num_layers=3,
  model_dim=64,
  num_heads=8,
  head_dim=8,
  hidden_dim=256,
  vocab_size=203,
)
# Of the logits, which are up to 30.
_TOLERANCE = 1e-5 * 30


@functools.cache
def _variables() -> dict[str, np.ndarray]:
  """Such that the caps of logits and of attention count."""
  found = random_model.variables(_CONFIG, seed=3, scale=8)
  for name, value in found.items():
    if name.endswith('combined_qkv.w'):
      value[:2] *= 4
    if name.endswith('per_dim_scale'):
      value *= 10
  return found


@functools.cache
def _praxis_model(
  repeated: bool, combined: bool = True
) -> models.LanguageModel:
  class Small(lm_cloud.LmCloudSpmdTest):
    NUM_LAYERS = _CONFIG.num_layers
    VOCAB_SIZE = _CONFIG.vocab_size
    FPROP_DTYPE = np.float32
    USE_REPEATED_LAYER = repeated
    COMBINE_QKV = combined
    ICI_MESH_SHAPE = None

  return base_layer.instantiate(Small().task().model)


def _stored(repeated: bool, combined: bool = True) -> dict[str, np.ndarray]:
  """The model's variables in one of praxis' forms."""
  variables = dict(_variables())
  if repeated:
    variables = random_model.repeated(variables, _CONFIG)
  if combined:
    return variables
  result = {}
  for name, value in variables.items():
    if not name.endswith('combined_qkv.w'):
      result[name] = value
      continue
    for i, part in enumerate(('query', 'key', 'value')):
      own = value[:, i] if repeated else value[i]
      result[name.replace('combined_qkv', part)] = own
  return result


@functools.cache
def _praxis_logits(length: int) -> np.ndarray:
  return _logits_by_praxis(_tokens(length), repeated=False)


def _logits_by_praxis(ids, *form, **form_by_name) -> np.ndarray:
  context = base_layer.JaxContext.HParams(do_eval=True)
  with base_layer.JaxContext.new_context(hparams=context):
    logits = _praxis_model(*form, **form_by_name).apply(
      gptj_model.nested(_stored(*form, **form_by_name)),
      ids,
      np.zeros(ids.shape, np.float32),
      method=lambda model, ids, paddings: model.lm(ids, paddings).logits,
    )
  return np.asarray(logits)


def _tokens(length: int) -> np.ndarray:
  rng = np.random.default_rng(1)
  return rng.integers(0, _CONFIG.vocab_size, (2, length)).astype(np.int32)


def _logits(variables, ids, config=_CONFIG, **kwargs) -> np.ndarray:
  weights = weights_lib.from_pax(variables, config, **kwargs)

  @jax.jit
  def run(weights):
    x, _ = model_lib.prefill(weights, config, ids, 'float32')
    return model_lib.logits(weights, config, x)

  return np.asarray(run(weights))


class LogitsTest(parameterized.TestCase):
  @parameterized.product(repeated=(False, True), combined=(False, True))
  def test_prefill(self, repeated, combined):
    ids = _tokens(150)
    variables = _stored(repeated, combined)
    theirs = _logits_by_praxis(ids, repeated, combined)
    ours = _logits(variables, ids)
    difference = np.abs(ours - theirs).max()
    print(
      f'largest difference {difference:.1e}, largest {np.abs(theirs).max()}'
    )
    self.assertLess(difference, _TOLERANCE)
    self.assertGreater(np.abs(theirs).max(), 20)  # 30 is the cap.


if __name__ == '__main__':
  absltest.main()
