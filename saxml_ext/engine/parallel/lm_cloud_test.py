"""Tests that LmCloudSpmd models give equal answers on a device and on meshes.

tests/parity compares these models with praxis.
"""

import dataclasses
import functools

from absl.testing import absltest
from absl.testing import parameterized
import jax
import jax.numpy as jnp
import numpy as np

from saxml_ext.engine import abstract_weights
from saxml_ext.engine import architecture
from saxml_ext.engine import config as config_lib
from saxml_ext.engine import model
from saxml_ext.engine import platform_configs
from saxml_ext.engine import request as request_lib
from saxml_ext.engine import runner as runner_lib
from saxml_ext.engine import sharding
from saxml_ext.engine import weights as weights_lib
from saxml_ext.engine.testing import random_model
from saxml_ext.engine.testing import serving

jax.config.update('jax_num_cpu_devices', 4)

_VOCAB = 601  # Needs padding on a mesh.
_CONFIG = random_model.lm_cloud(
  num_layers=2,
  model_dim=32,
  num_heads=4,
  head_dim=16,
  hidden_dim=64,
  vocab_size=_VOCAB,
)
_ENGINE = config_lib.EngineConfig(
  eos_id=0,
  num_slots=4,
  decode_widths=(4,),
  max_prompt=24,
  prompt_buckets=(24,),
  prefill_batches=(2,),
  prefill_chunk=16,
  max_new_tokens=8,
  min_new_tokens=2,
  num_beams=3,
  suffix_block=6,
)


@functools.cache
def _variables(config=_CONFIG):
  return random_model.variables(config, seed=4, scale=6)


def _weights(quantization=None, stacked=False, config=_CONFIG):
  weights = weights_lib.from_pax(
    _variables(config), config, 'float32', quantization, quantize_head=False
  )
  return weights_lib.stack(weights) if stacked else weights


def _serve(engine, quantization=None, mesh=None, config=_CONFIG, stacked=False):
  """Returns the results of six requests, whose prompts have two chunks."""
  rng = np.random.default_rng(7)
  requests = [
    request_lib.Request(
      rng.integers(1, _VOCAB, length).astype(np.int32), seed=int(length)
    )
    for length in (18, 24, 17, 21, 23, 20)
  ]
  weights = _weights(quantization, stacked, config)
  if mesh is not None:
    mesh = sharding.make_mesh(mesh)
  return serving.serve(
    runner_lib.Runner(weights, config, engine, mesh), requests
  )


class LmCloudTest(parameterized.TestCase):
  @parameterized.parameters(
    ('beam', None, 'float32', (1, 1, 4)),
    ('pax', 'int8', 'int8', (1, 2, 2)),
    ('sample', 'int8_weights', 'float32', (1, 4, 1)),
  )
  def test_tokens_do_not_depend_on_the_mesh(
    self, search, quantization, kv_dtype, mesh
  ):
    engine = dataclasses.replace(_ENGINE, search=search, kv_dtype=kv_dtype)
    # One of the cases compares layers in a loop with layers that are unrolled.
    alone = _serve(engine, quantization, stacked=search != 'beam')
    self.assertLen({str(t) for t in serving.tokens(alone)}, 6)
    tiled = platform_configs.tiled(engine)
    got = _serve(tiled, quantization, mesh, stacked=True)
    self.assertEqual(serving.tokens(got), serving.tokens(alone))

  @parameterized.parameters((None, True), ('int8', False))
  def test_heads_are_padded_to_the_mesh(self, quantization, stacked):
    """Checks that zeros in padded heads change no token in float32 or int8."""
    config = dataclasses.replace(_CONFIG, num_heads=3)
    engine = dataclasses.replace(_ENGINE, kv_dtype=quantization or 'float32')
    alone = _serve(engine, quantization, config=config, stacked=True)
    if stacked:
      engine = platform_configs.tiled(engine)
    got = _serve(engine, quantization, (1, 1, 4), config, stacked)
    self.assertEqual(serving.tokens(got), serving.tokens(alone))

  def test_padded_tokens_keep_no_logit(self):
    """Checks that padding has logits of -inf, which a cap would bound."""
    mesh = sharding.make_mesh((1, 1, 4))
    weights = sharding.pad(mesh, _weights())
    self.assertEqual(weights.embedding.shape, (1024, 32))
    logits = model.logits(weights, _CONFIG, jnp.ones((1, 32)))
    self.assertTrue(np.isneginf(logits[:, _VOCAB:]).all())
    self.assertLess(np.abs(logits[:, :_VOCAB]).max(), 30)

  @parameterized.parameters(
    ('bfloat16', None), ('float32', 'int8'), ('bfloat16', 'int8_weights')
  )
  def test_abstract_weights_are_the_shapes_of_real_ones(self, *kind):
    real = weights_lib.from_pax(_variables(), _CONFIG, *kind, False)
    self.assertIsNone(real.head)
    actual = abstract_weights.shapes(_CONFIG, *kind, False)
    self.assertEqual(actual, jax.eval_shape(lambda: real))
    actual = abstract_weights.shapes(_CONFIG, *kind, False, stacked=True)
    self.assertEqual(actual, jax.eval_shape(lambda: weights_lib.stack(real)))

  def test_sizes_are_read_off_the_shapes(self):
    known = dict(
      rotary_dim=0,
      architecture=architecture.LM_CLOUD,
      ln_epsilon=1e-6,
      ln_direct_scale=False,
    )
    for actual in _variables(), random_model.repeated(_variables(), _CONFIG):
      self.assertEqual(
        config_lib.ModelConfig.from_pax(actual, **known), _CONFIG
      )

  def test_contradictory_settings_are_refused(self):
    with self.assertRaisesRegex(ValueError, 'rotary_dim is 8, but must be 0'):
      dataclasses.replace(_CONFIG, rotary_dim=8)
    with self.assertRaisesRegex(
      ValueError, "positions is 'learned', but must be"
    ):
      architecture.Architecture(positions='learned')
    with self.assertRaisesRegex(
      ValueError, 'logit_cap is 0, but must be above 0'
    ):
      architecture.Architecture(logit_cap=0)
    with self.assertRaisesRegex(ValueError, 'the head is the embedding'):
      weights_lib.from_pax(_variables(), _CONFIG, quantization='int8')


if __name__ == '__main__':
  absltest.main()
