"""Compares the layers for TPU with those of `model.py`, on CPUs.

On a TPU the layers are compiled for it. In these tests the platform only
reports a TPU, and XLA computes the layers with four CPU devices.
"""

import contextlib
import dataclasses
import functools
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import jax
import jax.numpy as jnp
import numpy as np

from saxml_ext.engine import architecture
from saxml_ext.engine import config as config_lib
from saxml_ext.engine import model
from saxml_ext.engine import request as request_lib
from saxml_ext.engine import runner as runner_lib
from saxml_ext.engine import sharding
from saxml_ext.engine import weights as weights_lib
from saxml_ext.engine.attention import cache
from saxml_ext.engine.kernels.tpu import rows as row_kernels
from saxml_ext.engine.parallel import tensor_parallel
from saxml_ext.engine.testing import random_model
from saxml_ext.engine.testing import serving

jax.config.update('jax_num_cpu_devices', 4)

_MODEL = config_lib.ModelConfig(
  num_layers=2,
  model_dim=64,
  num_heads=4,
  head_dim=16,
  hidden_dim=128,
  rotary_dim=8,
  vocab_size=512,
)
_ENGINE = config_lib.EngineConfig(
  eos_id=0,
  num_slots=4,
  max_prompt=24,
  prompt_buckets=(24,),
  prefill_batches=(2,),
  prefill_chunk=16,
  max_new_tokens=12,
  min_new_tokens=3,
  search='sample',
  num_beams=1,
  temperature=0.0,
  suffix_block=6,
  kv_dtype='int8',
)
_NEOX = dict(activation=architecture.GELU, biases=architecture.BIASES)
_LLAMA = dict(
  activation=architecture.SILU,
  gated=True,
  norm=architecture.RMS_NORM,
  biases=(),
)


@functools.cache
def _weights(quantization='int8', config=_MODEL):
  variables = random_model.variables(config, scale=20.0)
  weights = weights_lib.from_pax(variables, config, quantization=quantization)
  return weights_lib.stack(weights)


def _as_on_tpu():
  return mock.patch.object(tensor_parallel, '_for_tpu', return_value=True)


def _logits(weights, tokens, last, mesh, config=_MODEL):
  """Returns the logits of prompts, from a program for the mesh."""

  def run(weights):
    x, _ = model.prefill(weights, config, tokens, 'float32', last)
    return model.logits(weights, config, x)

  if mesh is None:
    return np.asarray(jax.jit(run)(weights))
  mesh = sharding.make_mesh(mesh)
  with jax.set_mesh(mesh):
    return np.asarray(jax.jit(run)(sharding.shard(mesh, weights)))


@functools.cache
def _exact_logits(length, only_last):
  """Returns tokens, their last positions, and their logits in float32."""
  rng = np.random.default_rng(1)
  tokens = jnp.asarray(rng.integers(0, 512, (2, length)))
  last = jnp.asarray([length - 1, 4]) if only_last else None
  return tokens, last, _logits(_weights(None), tokens, last, None)


def _serve(quantization, widths, mesh=None):
  """Returns the tokens of 12 requests with prompts of two chunks.

  Slots are refilled when they are free.
  """
  rng = np.random.default_rng(7)
  requests = [
    request_lib.Request(
      rng.integers(1, 512, rng.integers(17, 25)).astype(np.int32),
      max_new_tokens=3,
      min_new_tokens=0,
    )
    for _ in range(12)
  ]
  engine = dataclasses.replace(_ENGINE, decode_widths=widths)
  runner = runner_lib.Runner(_weights(quantization), _MODEL, engine, mesh)
  return np.array(serving.tokens(serving.serve(runner, requests)))


@functools.cache
def _exact_answers():
  return _serve(None, (4,))


class TensorParallelTest(parameterized.TestCase):
  @parameterized.parameters(
    ((1, 1, 4), 24, False),
    ((1, 1, 4), 13, True),
    ((1, 2, 2), 13, False),
    ((1, 1, 1), 13, True),
    (None, 24, False),
  )
  def test_prefill_agrees(self, mesh, length, only_last):
    """Compares logits; 13 tokens do not divide among four devices."""
    tokens, last, exact = _exact_logits(length, only_last)
    plain = _logits(_weights(), tokens, last, mesh)
    with _as_on_tpu():
      got = _logits(_weights(), tokens, last, mesh)
    self.assertEqual(got.shape, plain.shape)
    # Both round the same logits. bfloat16 between the products increases the
    # error of int8, and finer scales reduce it.
    lost = np.abs(plain - exact).mean()
    self.assertLess(np.abs(got - exact).mean(), 1.2 * lost)
    self.assertGreater(np.abs(got - plain).mean(), 0)

  @parameterized.parameters(
    ('shared', 2, False),
    ('parallel', 4, True),
    ('sequential', 2, True),
    ('sequential', 2, False, _LLAMA),
  )
  def test_other_architectures_agree(
    self, residual, kv_heads, only_last, changes=_NEOX
  ):
    model_config = dataclasses.replace(
      _MODEL,
      num_kv_heads=kv_heads,
      architecture=architecture.Architecture(residual=residual, **changes),
    )
    tokens = jnp.asarray(np.random.default_rng(1).integers(0, 512, (2, 13)))
    last = jnp.asarray([12, 4]) if only_last else None
    floats = _weights(None, model_config)
    exact = _logits(floats, tokens, last, None, model_config)
    args = _weights('int8', model_config), tokens, last, (1, 1, 2), model_config
    plain = _logits(*args)
    with _as_on_tpu():
      got = _logits(*args)
    self.assertEqual(got.shape, plain.shape)
    lost = np.abs(plain - exact).mean()
    self.assertLess(np.abs(got - exact).mean(), 1.2 * lost)
    self.assertGreater(np.abs(got - plain).mean(), 0)

  @parameterized.parameters(((2, 1, 2),), (None,))
  def test_served_answers_agree(self, shape):
    """Checks widths of 2 and 4 slots, chunks of prompts, and refilled slots."""
    mesh = None if shape is None else sharding.make_mesh(shape)
    exact, plain = _exact_answers(), _serve('int8', (4,), mesh)
    with _as_on_tpu():
      got = _serve('int8', (2, 4), mesh)
    # Random logits are often close, so int8 changes some of the tokens.
    kept = (plain == exact).mean()
    self.assertGreater(kept, 0.6)
    self.assertGreater((got == exact).mean(), kept - 0.2)

  @parameterized.parameters(((1, 2, 2), False), (None, True))
  def test_prefill_kernel_keeps_what_the_plain_engine_keeps(self, mesh, last):
    """Compares keys and values; the kernel pads 130 tokens to 256."""
    wide = dataclasses.replace(_MODEL, head_dim=128, rotary_dim=64)
    self.assertFalse(tensor_parallel.attends(_MODEL, 'int8'))
    self.assertTrue(tensor_parallel.attends(wide, 'int8'))
    weights = weights_lib.stack(
      weights_lib.from_pax(
        random_model.variables(wide), wide, quantization='int8'
      )
    )
    tokens = jnp.asarray(np.random.default_rng(1).integers(0, 512, (2, 130)))

    def run(weights, kept_length):
      # The loop writes all layers to one place, so the last layer remains.
      kept = jax.tree.map(
        jnp.zeros_like,
        (
          cache.keys_as(jnp.zeros((2, 4, 128, kept_length)), 'int8'),
          cache.rows_as(jnp.zeros((2, 4, kept_length, 128)), 'int8'),
        ),
      )
      at = jnp.asarray([129, 50]) if last else None
      x, result = model.prefill(
        weights,
        wide,
        tokens,
        'int8',
        at,
        keep=lambda kept, layer, *kv: kv,
        kept=kept,
      )
      keys, values = result
      keys = keys.values * keys.scale.reshape(2, 4, 1, kept_length)
      values = values.values * values.scale.reshape(2, 4, kept_length, 1)
      return x, (keys[..., :130], values[:, :, :130])

    results = []
    for context, kept_length in (
      (contextlib.nullcontext(), 130),
      (_as_on_tpu(), 256),
    ):
      with context:
        if mesh is None:
          results.append(jax.jit(run, static_argnums=1)(weights, kept_length))
          continue
        devices = sharding.make_mesh(mesh)
        with jax.set_mesh(devices):
          placed = sharding.shard(devices, weights)
          traced = jax.jit(run, static_argnums=1)
          results.append(traced(placed, kept_length))
    (x, kv), (got, got_kv) = results
    self.assertEqual(got.shape, x.shape)
    for a, b in ((got, x), *zip(got_kv, kv)):
      a, b = np.asarray(a, np.float32), np.asarray(b, np.float32)
      self.assertLess(np.abs(a - b).mean(), 0.04 * np.abs(b).mean())

  def test_only_int8_on_tpu(self):
    weights = _weights()
    self.assertFalse(tensor_parallel.applies(weights))
    with _as_on_tpu():
      self.assertTrue(tensor_parallel.applies(weights))
      for other in (None, 'int8_weights'):
        self.assertFalse(tensor_parallel.applies(_weights(other)))

  def test_large_parts_do_not_coarsen_others(self):
    """Checks that each device scales by the largest value of its own part."""
    mesh = sharding.make_mesh((1, 1, 4))
    weights = _weights()
    layer = jax.tree.map(lambda x: x[0], weights.layers)
    mixed = np.random.default_rng(2).normal(size=(8, 64)).astype(np.float32)
    mixed[:, :16] *= 1000
    # The large values of the first head are multiplied with zeros.
    post = np.array(layer.post.values)
    post[:, :16] = 0
    layer = dataclasses.replace(
      layer,
      post=dataclasses.replace(layer.post, values=jnp.asarray(post)),
      down=jax.tree.map(jnp.zeros_like, layer.down),
      down_bias=jnp.zeros(64),
    )
    expected = mixed @ post.T * np.asarray(layer.post.scale)
    with jax.set_mesh(mesh):
      rows = tensor_parallel.Rows((2, 4), _MODEL)
      got, *_ = jax.jit(rows.finish)(
        layer,
        jnp.zeros((32, 64)),
        row_kernels.Codes(jnp.zeros((8, 64), jnp.int8), jnp.ones((8, 1))),
        mixed,
      )
      got = jax.jit(rows.join)(got).reshape(8, 64)
    error = np.abs(got - expected).mean() / np.abs(expected).mean()
    self.assertLess(error, 0.02)


if __name__ == '__main__':
  absltest.main()
