"""Compares the engine's LmCloudSpmd with paxml's LmCloudSpmdTest on praxis."""

from collections.abc import Callable, Mapping
import dataclasses
import functools
from typing import Any

from absl.testing import absltest
from absl.testing import parameterized
from flax import traverse_util
import jax
import numpy as np

from saxml_ext.engine import config as config_lib
from saxml_ext.engine import model as model_lib
from saxml_ext.engine import request as request_lib
from saxml_ext.engine import runner as runner_lib
from saxml_ext.engine import weights as weights_lib
from saxml_ext.engine.testing import random_model
from saxml_ext.engine.testing import serving
from saxml_ext.params import lm_cloud as lm_cloud_params
from saxml_ext.params.experiments import experiment
from saxml_ext.pax import compat
from saxml_ext.pax import restore
from saxml_ext.pax.testing import checkpoints

compat.install_paxml()

# paxml and praxis can be imported once they have been prepared.
# isort: split
from paxml.tasks.lm.params import lm_cloud
from praxis import base_layer
from praxis.layers import models
from praxis.layers.quantization import quantization_hparams
from praxis.layers.quantization import quantize

_CONFIG = random_model.lm_cloud(
  num_layers=3,
  model_dim=64,
  num_heads=8,
  head_dim=8,
  hidden_dim=256,
  vocab_size=203,
)
# The tolerance of the logits, whose values are up to 30.
_TOLERANCE = 1e-5 * 30


@functools.cache
def _variables() -> dict[str, np.ndarray]:
  """Returns variables for which the caps of logits and attention matter."""
  values = random_model.variables(_CONFIG, seed=3, scale=8)
  for name, value in values.items():
    if name.endswith('combined_qkv.w'):
      value[:2] *= 4
    if name.endswith('per_dim_scale'):
      value *= 10
  return values


def _experiment(repeated: bool, combined: bool = True) -> type:
  class Small(lm_cloud.LmCloudSpmdTest):
    NUM_LAYERS = _CONFIG.num_layers
    VOCAB_SIZE = _CONFIG.vocab_size
    FPROP_DTYPE = np.float32
    USE_REPEATED_LAYER = repeated
    COMBINE_QKV = combined
    ICI_MESH_SHAPE = None

  return Small


def _quantized(small: type, variables) -> dict[str, np.ndarray]:
  """Returns the variables in int8, as praxis quantizes them."""
  task = small().task()
  mode = quantization_hparams.QuantizationMode.MATERIALIZE
  quantize.set_transformer_quantization(task.model, mode=mode)
  model = base_layer.instantiate(task.model)
  context = base_layer.JaxContext.HParams(do_eval=True)
  with base_layer.JaxContext.new_context(hparams=context):
    tree, _ = model.apply(
      traverse_util.unflatten_dict(variables, sep='.'),
      method=model.quantize_weight,
      mutable=[],
    )
  return {
    '.'.join(part.key for part in path): np.asarray(value)
    for path, value in jax.tree_util.tree_leaves_with_path(tree)
  }


def _stored(repeated: bool, combined: bool = True) -> dict[str, np.ndarray]:
  """Returns the model's variables in one of praxis' forms."""
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
def _praxis(
  repeated: bool = False, combined: bool = True
) -> Callable[[np.ndarray], jax.Array]:
  """Returns a function from ids [B, T] to praxis' logits [B, T, V]."""
  model = base_layer.instantiate(_experiment(repeated, combined)().task().model)
  variables = traverse_util.unflatten_dict(_stored(repeated, combined), sep='.')
  return jax.jit(functools.partial(_apply, model, variables))


def _apply(
  model: models.LanguageModel, variables: Mapping[str, Any], ids: np.ndarray
) -> jax.Array:
  context = base_layer.JaxContext.HParams(do_eval=True)
  with base_layer.JaxContext.new_context(hparams=context):
    return model.apply(
      variables,
      ids,
      np.zeros(ids.shape, np.float32),
      method=lambda model, ids, paddings: model.lm(ids, paddings).logits,
    )


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
    theirs = np.asarray(_praxis(repeated, combined)(ids))
    ours = _logits(variables, ids)
    difference = np.abs(ours - theirs).max()
    print(
      f'largest difference {difference:.1e}, largest {np.abs(theirs).max()}'
    )
    self.assertLess(difference, _TOLERANCE)
    self.assertGreater(np.abs(theirs).max(), 20)  # The cap is 30.

  @parameterized.parameters(
    dict(attention_cap=None),
    dict(logit_cap=None),
    dict(query_scale=False),
    dict(scaled_embedding=False),
  )
  def test_every_choice_counts(self, **change):
    """Checks that every choice changes the logits, so that it is tested."""
    changed = dataclasses.replace(_CONFIG.architecture, **change)
    config = dataclasses.replace(_CONFIG, architecture=changed)
    ids = _tokens(24)
    theirs = _praxis()(ids)
    difference = np.abs(_logits(_stored(False), ids, config) - theirs).max()
    self.assertGreater(difference, 100 * _TOLERANCE)

  def test_int8_weights(self):
    """Compares the logits for praxis' own int8 variables of repeated layers."""
    ids = _tokens(40)
    small = _experiment(repeated=True)
    int8 = _quantized(small, _stored(repeated=True))
    name = 'params.lm.transformer.repeat.sub.x_layers_0.self_attention.post.w'
    self.assertEqual(int8[name].dtype, np.int8)
    self.assertEqual(int8[f'{name}_quantized_scale'].shape, (3, 64))
    task = small().task()
    quantize.set_transformer_quantization(task.model, weight_quant_only=True)
    model = base_layer.instantiate(task.model)
    theirs = _apply(model, traverse_util.unflatten_dict(int8, sep='.'), ids)
    ours = _logits(int8, ids, quantization='int8_weights', quantize_head=False)
    difference = np.abs(ours - theirs).max()
    print(f'int8 weights: largest difference {difference:.1e}')
    self.assertLess(difference, 5 * _TOLERANCE)
    rounding = np.abs(ours - _logits(_stored(True), ids)).max()
    self.assertGreater(rounding, 100 * _TOLERANCE)

  @parameterized.parameters(False, True)
  def test_params_as_an_experiment(self, repeated):
    """Compares the model that praxis restores by our params with paxml's."""
    path = self.create_tempdir().full_path
    checkpoints.write_checkpoint(path, _stored(repeated).items())

    class Small(lm_cloud_params.LmCloudSpmd2B):
      NUM_LAYERS = _CONFIG.num_layers
      MODEL_DIMS = _CONFIG.model_dim
      HIDDEN_DIMS = _CONFIG.hidden_dim
      DIMS_PER_HEAD = _CONFIG.head_dim
      VOCAB_SIZE = _CONFIG.vocab_size
      FPROP_DTYPE = MODEL_DTYPE = 'float32'
      ICI_MESH_SHAPE = [1, 1, 1]

    restored = restore.restore(experiment.of(Small, path)(), path)
    ids = _tokens(24)
    got = _apply(restored.model, restored.variables, ids)
    difference = np.abs(got - _praxis(repeated)(ids)).max()
    self.assertLess(difference, _TOLERANCE)


class AnswersTest(parameterized.TestCase):
  """Compares the log-probabilities of the engine's answers with praxis'."""

  @parameterized.parameters(
    dict(search='beam', num_beams=4),
    dict(search='pax', num_beams=3, kv_dtype='bfloat16'),
    dict(search='sample', num_beams=2, prefill_chunk=16),
    dict(search='beam', num_beams=2, kv_dtype='int8', prefill_chunk=16),
  )
  def test_decoding(self, search, num_beams, kv_dtype='float32', **settings):
    runner = _runner(
      search=search, num_beams=num_beams, kv_dtype=kv_dtype, **settings
    )
    prompts = [p[: 5 + 9 * i] for i, p in enumerate(_prompts())]
    results = serving.serve(
      runner, [request_lib.Request(p, temperature=0.0) for p in prompts]
    )
    tolerance = 2e-4 if kv_dtype == 'float32' else 0.5
    for prompt, result in zip(prompts, results):
      self.assertLen(result.hypotheses, num_beams)
      for got in result.hypotheses:
        expected, likeliest = _by_praxis(prompt, got.tokens)
        self.assertAlmostEqual(got.logprob, expected, delta=tolerance)
        if search == 'sample':
          np.testing.assert_array_equal(got.tokens, likeliest)

  def test_score(self):
    runner = _runner(num_beams=2)
    for prompt in _prompts():
      expected, _ = _by_praxis(prompt[:20], prompt[20:])
      got = runner.score(prompt[:20], prompt[20:])
      self.assertAlmostEqual(got, expected, delta=2e-4)


def _runner(**settings) -> runner_lib.Runner:
  engine = config_lib.EngineConfig(
    eos_id=0,
    num_slots=2,
    decode_widths=(2,),
    max_prompt=32,
    prompt_buckets=(32,),
    max_new_tokens=8,
    min_new_tokens=3,
    suffix_block=4,
    **settings,
  )
  weights = weights_lib.from_pax(_stored(repeated=True), _CONFIG)
  return runner_lib.Runner(weights, _CONFIG, engine)


def _prompts() -> np.ndarray:
  rng = np.random.default_rng(8)
  return rng.integers(1, _CONFIG.vocab_size, (4, 32)).astype(np.int32)


def _by_praxis(prompt, tokens) -> tuple[float, np.ndarray]:
  """Returns the tokens' log-probability, and the best token per position."""
  # A single shape needs only one compilation.
  ids = np.zeros((1, 40), np.int32)
  total = len(prompt) + len(tokens)
  ids[0, :total] = np.concatenate([prompt, tokens])
  logits = np.asarray(_praxis()(ids))[0, len(prompt) - 1 : total - 1]
  log_probs = np.asarray(jax.nn.log_softmax(logits))
  return log_probs[np.arange(len(tokens)), tokens].sum(), logits.argmax(-1)


if __name__ == '__main__':
  absltest.main()
