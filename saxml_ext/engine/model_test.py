"""Compares the model with a GPT-J written in numpy with interleaved pairs."""

import dataclasses
import re

from absl.testing import absltest
from absl.testing import parameterized
import jax
import jax.numpy as jnp
import numpy as np

from saxml_ext.engine import architecture
from saxml_ext.engine import config as config_lib
from saxml_ext.engine import executables
from saxml_ext.engine import model
from saxml_ext.engine import program_keys
from saxml_ext.engine import rotary
from saxml_ext.engine import state
from saxml_ext.engine import weights as weights_lib
from saxml_ext.engine.attention import cache
from saxml_ext.engine.attention import decode_attention
from saxml_ext.engine.attention import steps as steps_lib
from saxml_ext.engine.kernels import kernels
from saxml_ext.engine.testing import random_model

_CONFIG = config_lib.ModelConfig(
  num_layers=2,
  model_dim=24,
  num_heads=3,
  head_dim=8,
  hidden_dim=40,
  rotary_dim=4,
  vocab_size=33,
)


def _numpy_logits(v, config, tokens):
  """Returns logits [T, V] float64 of one sequence [T]."""
  v = {n.removeprefix('params.lm.'): a.astype(float) for n, a in v.items()}
  length, r = len(tokens), config.rotary_dim

  def norm(x, name):
    scale = v[f'{name}.scale'] + (0 if config.ln_direct_scale else 1)
    x = x - x.mean(-1, keepdims=True)
    x = x / np.sqrt((x**2).mean(-1, keepdims=True) + config.ln_epsilon)
    return x * scale + v[f'{name}.bias']

  def rotate(x):  # [T, N, H]
    angle = np.arange(length)[:, None] / 10000 ** (np.arange(0, r, 2) / r)
    turn = np.exp(1j * angle)[:, None]
    pairs = (x[..., :r:2] + 1j * x[..., 1:r:2]) * turn
    out = x.copy()
    out[..., :r:2], out[..., 1:r:2] = pairs.real, pairs.imag
    return out

  x = v['embedding_lookup.emb_var'][tokens]
  for i in range(config.num_layers):
    p = f'transformer.x_layers_{i}'
    h = norm(x, f'{p}.layer_norm')
    q, k, a = np.einsum(
      'td,cdnh->ctnh', h, v[f'{p}.self_attention.combined_qkv.w']
    )
    scores = np.einsum('tnh,snh->nts', rotate(q), rotate(k))
    scores = scores / np.sqrt(config.head_dim)
    scores = np.where(np.tri(length, dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    mixed = np.einsum('nts,snh->tnh', weights, a)
    ffn = f'{p}.ff_layer.ffn_layer'
    u = h @ v[f'{ffn}1.linear.w'] + v[f'{ffn}1.bias.b']
    u = u / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (u + 0.044715 * u**3)))
    x = x + np.einsum('tnh,dnh->td', mixed, v[f'{p}.self_attention.post.w'])
    x = x + u @ v[f'{ffn}2.linear.w'] + v[f'{ffn}2.bias.b']
  head = 'softmax.logits_ffn'
  return norm(x, 'final_ln') @ v[f'{head}.linear.w'] + v[f'{head}.bias.b']


class ModelTest(parameterized.TestCase):
  @parameterized.parameters(True, False)
  def test_prefill_equals_numpy(self, direct_scale):
    config = config_lib.ModelConfig(
      **{**vars(_CONFIG), 'ln_direct_scale': direct_scale}
    )
    variables = random_model.variables(config)
    weights = weights_lib.from_pax(variables, config)
    tokens = np.random.default_rng(1).integers(0, 33, (2, 150))

    @jax.jit
    def run(tokens, last=None):
      x, _ = model.prefill(weights, config, tokens, 'float32', last)
      return model.logits(weights, config, x)

    got = run(jnp.asarray(tokens))
    lengths = [150, 131]
    last = run(jnp.asarray(tokens), jnp.asarray(lengths) - 1)
    for row in range(2):
      expected = _numpy_logits(variables, config, tokens[row])
      np.testing.assert_allclose(got[row], expected, atol=2e-4)
      np.testing.assert_allclose(
        last[row, 0], expected[lengths[row] - 1], atol=2e-4
      )

  @parameterized.parameters(
    ('float32', 'float32', 2e-4),
    ('float32', 'bfloat16', 0.05),
    ('float32', 'int8', 0.15),
    ('bfloat16', 'bfloat16', 0.15),
  )
  def test_decode_continues_prefill_along_ancestry(
    self, weights_dtype, dtype, tolerance
  ):
    variables = random_model.variables(_CONFIG)
    weights = weights_lib.from_pax(variables, _CONFIG, weights_dtype)
    rng = np.random.default_rng(2)
    lengths, beams, width, steps = [5, 9], 3, 4, 6
    prompts = rng.integers(0, 33, (2, 9))

    @jax.jit
    def prefill(tokens):
      segments = tuple(
        cache.empty_block(_CONFIG, 2, length, dtype) for length in (6, 4)
      )

      def keep(segments, layer, keys, values):
        return cache.insert_prompts(
          segments, layer, jnp.arange(2), 0, keys, values
        )

      _, segments = model.prefill(
        weights, _CONFIG, tokens, dtype, keep=keep, kept=segments
      )
      return segments

    segments = prefill(jnp.asarray(prompts))
    rotations = [jnp.asarray(t) for t in rotary.table(20, 4, 10000.0)]
    ring = [
      cache.empty_block(_CONFIG, 2, width * beams, dtype, suffix=True)
      for _ in range(2)
    ]
    ancestry = [jnp.full((2, beams, width), steps_lib.NOTHING, jnp.int8)] * 2
    history = np.zeros((2, beams, 0), int)

    @jax.jit
    def decode(*args):
      head, block = model.decode(weights, _CONFIG, *args, dtype)
      return head.logits(), block

    for step in range(steps):
      tokens = rng.integers(0, 33, (2, beams))
      history = np.concatenate([history, tokens[..., None]], -1)
      block, row = divmod(step, width)
      ancestry[block] = steps_lib.claim_row(ancestry[block], row)
      logits, ring[block] = decode(
        jnp.asarray(tokens),
        jnp.asarray(lengths) + step,
        rotations,
        decode_attention.History(
          jnp.asarray(lengths, jnp.int32),
          segments,
          ring[:block],
          ancestry[: block + 1],
        ),
        ring[block],
        row,
      )
      for slot in range(2):
        for beam in range(beams):
          whole = np.concatenate(
            [prompts[slot, : lengths[slot]], history[slot, beam]]
          )
          np.testing.assert_allclose(
            logits[slot, beam],
            _numpy_logits(variables, _CONFIG, whole)[-1],
            atol=tolerance,
          )
      parents = rng.integers(0, beams, (2, beams))
      ancestry = [steps_lib.inherit(a, jnp.asarray(parents)) for a in ancestry]
      history = history[np.arange(2)[:, None], parents]

  @parameterized.parameters('int8', 'int8_weights')
  def test_int8_follows_numpy(self, quantization):
    variables = random_model.variables(_CONFIG)
    weights = weights_lib.from_pax(
      variables, _CONFIG, quantization=quantization
    )
    self.assertEqual(weights.embedding.dtype, jnp.float32)
    for layer in weights.layers:
      for matrix in (layer.qkv, layer.post, layer.up, layer.down):
        self.assertEqual(matrix.values.dtype, jnp.int8)
    tokens = np.random.default_rng(1).integers(0, 33, (1, 40))
    x, _ = model.prefill(weights, _CONFIG, jnp.asarray(tokens), 'float32')
    got = model.logits(weights, _CONFIG, x)[0]
    expected = _numpy_logits(variables, _CONFIG, tokens[0])
    # Logits have a standard deviation of 1. Rounding changes them by a few
    # hundredths.
    self.assertLess(np.abs(got - expected).mean(), 0.03)
    self.assertGreater(np.abs(got - expected).mean(), 1e-3)

  def test_int4_follows_numpy(self):
    config = dataclasses.replace(
      _CONFIG, model_dim=32, num_heads=4, hidden_dim=64
    )
    variables = random_model.variables(config)
    weights = weights_lib.from_pax(variables, config, quantization='int4')
    for layer in weights.layers:
      for matrix in (layer.qkv, layer.post, layer.up, layer.down):
        self.assertEqual(matrix.values.dtype, jnp.uint8)
    tokens = np.random.default_rng(1).integers(0, 33, (1, 40))
    x, _ = model.prefill(weights, config, jnp.asarray(tokens), 'float32')
    got = model.logits(weights, config, x)[0]
    error = np.abs(got - _numpy_logits(variables, config, tokens[0])).mean()
    # A sixteenth of the range is 30 times an eighth of a percent of it.
    self.assertLess(error, 0.3)
    self.assertGreater(error, 0.01)

  def test_greedy_steps_do_not_write_logits(self):
    if not kernels.can_multiply():
      self.skipTest('this processor leaves int8 products to XLA')
    variables = random_model.variables(_CONFIG)
    settings = state.Settings(
      _CONFIG,
      config_lib.EngineConfig(
        eos_id=0,
        max_prompt=8,
        max_new_tokens=4,
        min_new_tokens=0,
        num_beams=1,
        num_slots=2,
        search='sample',
        max_top_k=4,
      ),
    )
    has_logits = []
    for quantization in ('int8', None):
      weights = weights_lib.from_pax(
        variables, _CONFIG, quantization=quantization
      )
      run = executables.Executables(settings, weights)
      text = run.lower(program_keys.Decode(2)).compile().as_text()
      has_logits.append(bool(re.search(r'= f32\[2,(1,)?33\]', text)))
    self.assertEqual(has_logits, [False, True])

  @parameterized.parameters('int8', 'int8_weights')
  def test_quantized_checkpoints_are_taken_as_they_are(self, quantization):
    variables = random_model.variables(_CONFIG)
    expected = weights_lib.from_pax(variables, _CONFIG, 'float32', quantization)
    # The contracted dimensions of each variable, as the checkpoint stores it.
    summed = {'combined_qkv.w': (1,), 'post.w': (1, 2), 'linear.w': (0,)}
    quantized = dict(variables)
    for name, value in variables.items():
      for suffix, axes in summed.items():
        if name.endswith(suffix) and 'softmax' not in name:
          peak = np.abs(value).max(axes, keepdims=True)
          codes = np.rint(value * (np.float32(127) / peak))
          quantized[name] = codes.astype(np.int8)
          scale = (peak * (1 / np.float32(127))).squeeze(axes)
          quantized[name + '_quantized_scale'] = scale
    got = weights_lib.from_pax(quantized, _CONFIG, 'float32', quantization)
    jax.tree.map(np.testing.assert_array_equal, got, expected)
    for other in (None, 'int4', 'fp8'):
      with self.assertRaisesRegex(ValueError, "is int8.*'int8_weights'"):
        weights_lib.from_pax(quantized, _CONFIG, quantization=other)
    quantized.pop(
      next(n for n in quantized if n.endswith('post.w')) + '_quantized_scale'
    )
    with self.assertRaisesRegex(ValueError, 'post.w_quantized_scale'):
      weights_lib.from_pax(quantized, _CONFIG, quantization=quantization)

  def test_the_head_may_stay_in_float(self):
    variables = random_model.variables(_CONFIG)
    weights = weights_lib.from_pax(
      variables, _CONFIG, quantization='int8', quantize_head=False
    )
    self.assertEqual(weights.head.dtype, jnp.float32)
    self.assertEqual(weights.layers[0].up.values.dtype, jnp.int8)

  def test_int8_is_refused_where_nothing_is_multiplied(self):
    variables = random_model.variables(_CONFIG)
    name = 'params.lm.embedding_lookup.emb_var'
    variables[name] = variables[name].astype(np.int8)
    with self.assertRaisesRegex(ValueError, 'emb_var is int8'):
      weights_lib.from_pax(variables, _CONFIG, quantization='int8')

  def test_unknown_quantization_is_refused(self):
    variables = random_model.variables(_CONFIG)
    with self.assertRaisesRegex(ValueError, "'int2', not one of .*'int8'"):
      weights_lib.from_pax(variables, _CONFIG, quantization='int2')

  def test_config_is_read_off_the_shapes(self):
    variables = random_model.variables(_CONFIG)
    self.assertEqual(config_lib.ModelConfig.from_pax(variables, 4), _CONFIG)

  def test_missing_and_misshapen_variables_are_named(self):
    variables = random_model.variables(_CONFIG)
    name = 'params.lm.transformer.x_layers_1.ff_layer.ffn_layer2.linear.w'
    value = variables.pop(name)
    with self.assertRaisesRegex(ValueError, 'x_layers_1.*ffn_layer2.linear.w'):
      weights_lib.from_pax(variables, _CONFIG)
    variables[name] = value.T
    with self.assertRaisesRegex(ValueError, r'\(24, 40\).*\(40, 24\)'):
      weights_lib.from_pax(variables, _CONFIG)


class SwitchesTest(absltest.TestCase):
  def test_stacked_layers_compute_the_same(self):
    config = config_lib.ModelConfig(
      num_layers=2,
      model_dim=32,
      num_heads=4,
      head_dim=8,
      hidden_dim=48,
      rotary_dim=8,
      vocab_size=40,
      num_kv_heads=2,
      architecture=architecture.Architecture(
        residual=architecture.SEQUENTIAL,
        norm=architecture.RMS_NORM,
        norm_policy=architecture.AFTER,
        qk_norm=architecture.ALL,
        biases=(),
      ),
      details=architecture.Details(3.0, 0.22, 0.5, 0.75, unrotated=(1,)),
    )
    variables = random_model.variables(config)
    tokens = np.arange(12, dtype=np.int32)[None]

    @jax.jit
    def logits(weights):
      x, _ = model.prefill(weights, config, tokens, 'float32')
      return model.logits(weights, config, x)

    results = [
      logits(weights_lib.from_pax(variables, config, stacked=stacked))
      for stacked in (False, True)
    ]
    np.testing.assert_allclose(*results, rtol=0, atol=1e-5)


if __name__ == '__main__':
  absltest.main()
