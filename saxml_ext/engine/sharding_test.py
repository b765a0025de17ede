"""Tests the engine on meshes of four CPU devices.

Devices compute sums in a different order, so the tests compare tokens and not
bits. The random models predict their tokens with enough certainty.
"""

import dataclasses
import functools
import json
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
from saxml_ext.engine import platform_configs
from saxml_ext.engine import program_keys
from saxml_ext.engine import request as request_lib
from saxml_ext.engine import runner as runner_lib
from saxml_ext.engine import sharding
from saxml_ext.engine import state
from saxml_ext.engine import weights as weights_lib
from saxml_ext.engine.attention import cache
from saxml_ext.engine.testing import random_model
from saxml_ext.engine.testing import serving

jax.config.update('jax_num_cpu_devices', 4)

_MODEL = config_lib.ModelConfig(
  num_layers=2,
  model_dim=32,
  num_heads=4,
  head_dim=16,
  hidden_dim=64,
  rotary_dim=8,
  vocab_size=2301,  # Needs padding, and both stages of topk.py.
)
_ENGINE = config_lib.EngineConfig(
  eos_id=0,
  num_slots=4,
  decode_widths=(4,),
  max_prompt=24,
  prompt_buckets=(24,),
  prompt_segments=(16, 24),
  prefill_batches=(2,),
  max_new_tokens=12,
  min_new_tokens=3,
  num_beams=4,
  suffix_block=6,
)
# For meshes that split the slots.
_SPLIT = dataclasses.replace(
  platform_configs.tiled(_ENGINE), decode_widths=(2, 4)
)
_COLLECTIVE = re.compile(
  r' = (?P<type>.*?) (?P<kind>all-reduce|all-gather|reduce-scatter|all-to-all'
  r'|collective-permute)(?:-start)?\(.*op_name="(?P<name>[^"]*)"'
)
_MESHES = ((1, 1, 4), (1, 2, 2), (1, 4, 1), (2, 1, 2))


@functools.cache
def _weights(quantization=None, stacked=False):
  weights = weights_lib.from_pax(
    random_model.variables(_MODEL, scale=3.0),
    _MODEL,
    quantization=quantization,
  )
  return weights_lib.stack(weights) if stacked else weights


@functools.cache
def _runner(engine, quantization=None, stacked=False, mesh=None):
  if mesh is not None:
    mesh = sharding.make_mesh(mesh)
  weights = _weights(quantization, stacked)
  return runner_lib.Runner(weights, _MODEL, engine, mesh)


def _serve(engine, quantization=None, stacked=False, mesh=None):
  """Returns the results of 11 requests; slots are refilled when free.

  With chunks of prompts, each prompt is longer than a chunk.
  """
  shortest = engine.prefill_chunk + 1
  rng = np.random.default_rng(7)
  requests = [
    request_lib.Request(
      rng.integers(1, 2301, rng.integers(shortest, 25)).astype(np.int32),
      max_new_tokens=int(rng.integers(1, 13)),
      min_new_tokens=int(rng.integers(0, 6)),
    )
    for _ in range(11)
  ]
  return serving.serve(_runner(engine, quantization, stacked, mesh), requests)


class ShardingTest(parameterized.TestCase):
  @parameterized.named_parameters(
    (
      'float32',
      None,
      (
        (True, None),
        (False, (1, 1, 4)),
        (True, (1, 2, 2)),
        (True, (1, 4, 1)),
      ),
    ),
    (
      'int8',
      'int8',
      (
        (True, None),
        (True, (1, 1, 4)),
        (False, (1, 2, 2)),
        (False, (2, 2, 1)),
      ),
    ),
  )
  def test_tokens_depend_on_neither_mesh_nor_form(self, quantization, meshes):
    engine = _ENGINE
    if quantization:
      engine = dataclasses.replace(engine, kv_dtype='int8', prefill_chunk=16)
    tiled = platform_configs.tiled(engine)
    self.assertEqual((tiled.segments, tiled.suffix_block), ((128,), 32))
    alone = _serve(engine, quantization)
    self.assertGreater(len({str(t) for t in serving.tokens(alone)}), 5)
    for stacked, mesh in meshes:
      with self.subTest(stacked=stacked, mesh=mesh):
        chosen = tiled if stacked else engine
        if mesh is not None and mesh[1] == 2:  # The mesh splits the slots.
          chosen = dataclasses.replace(chosen, decode_widths=(2, 4))
        got = _serve(chosen, quantization, stacked, mesh)
        self.assertEqual(serving.tokens(got), serving.tokens(alone))
        for a, b in zip(got, alone):
          for one, other in zip(a.hypotheses, b.hypotheses):
            tolerance = 0.5 if quantization else 1e-3
            self.assertAlmostEqual(one.logprob, other.logprob, delta=tolerance)

  def test_requests_choose_and_stream_on_a_mesh(self):
    engine = dataclasses.replace(
      _ENGINE,
      search='any',
      num_samples=2,
      max_logprobs=2,
      embedding='mean',
      gradients=('embeddings',),
    )
    tokens = np.arange(1, 12, dtype=np.int32)
    requests = {
      0: request_lib.Request(tokens, stream=True, num_beams=2, logprobs=2),
      3: request_lib.Request(
        tokens, stream=True, beam_search=False, logprobs=2, seed=3
      ),
    }
    answers = []
    for mesh in (None, (1, 2, 2)):
      runner = _runner(engine, stacked=True, mesh=mesh)
      self.assertEqual(runner.interruptible, mesh is None)
      runner.prefill_and_insert(requests)
      streamed: dict[int, list[int]] = {}
      results: dict[int, request_lib.Result] = {}
      while len(results) < 2:
        results |= runner.step(2)
        for slot, progress in runner.progress.items():
          streamed[slot] = progress.rows[0].tokens.tolist()
      for slot, tokens_streamed in streamed.items():
        rows = [h for h in results[slot].hypotheses if h.row == 0]
        self.assertEqual(
          tokens_streamed, rows[0].tokens[: len(tokens_streamed)].tolist()
        )
      answers.append((streamed, results, runner))
    (streamed, alone, one), (other_streamed, split, other) = answers
    self.assertEqual(streamed, other_streamed)
    for slot in requests:
      for a, b in zip(alone[slot].hypotheses, split[slot].hypotheses):
        np.testing.assert_array_equal(a.tokens, b.tokens)
        np.testing.assert_allclose(
          a.token_logprobs, b.token_logprobs, atol=1e-3
        )
        np.testing.assert_array_equal(a.alternatives[0], b.alternatives[0])
    np.testing.assert_allclose(
      one.embed(tokens), other.embed(tokens), atol=1e-4
    )
    (score, gradients), (other_score, other_gradients) = (
      runner.gradient(tokens, tokens[:3]) for runner in (one, other)
    )
    self.assertAlmostEqual(score, other_score, places=3)
    np.testing.assert_allclose(
      gradients['embeddings'], other_gradients['embeddings'], atol=1e-3
    )

  def test_prompts_of_two_parts_are_prefilled_together(self):
    runner = _runner(_SPLIT, stacked=True, mesh=(1, 2, 2))

    def start(slot):
      tokens = np.arange(1, 9 + slot, dtype=np.int32)
      request = request_lib.Request(tokens, min_new_tokens=12)
      runner.prefill_and_insert({slot: request})

    start(0)  # Nothing else is to be done.
    self.assertEqual(runner.decoding, {0})
    start(1)  # It waits for one of slots 2 and 3.
    self.assertEqual(runner.decoding, {0})
    runner.step(1)
    start(2)
    self.assertEqual(runner.decoding, {0, 1, 2})
    start(3)
    runner.release(3)
    while runner.decoding:
      runner.step()
    start(3)
    self.assertEqual(runner.decoding, {3})
    runner.release(3)

  def test_short_waits_of_prompts(self):
    runner = _runner(_SPLIT, stacked=True, mesh=(1, 2, 2))
    request = request_lib.Request(np.arange(1, 9, dtype=np.int32))
    runner.prefill_and_insert({0: request})
    runner.prefill_and_insert({1: request})
    runner.step()  # Of few steps, for somebody waits.
    self.assertEqual(runner.decoding, {0})
    runner.step(1)
    self.assertEqual(runner.decoding, {0, 1})
    for slot in 0, 1:
      runner.release(slot)

  @parameterized.parameters(
    (None, 1e-5), ('int8', 0.02), ('int8_weights', 1e-5)
  )
  def test_logits_agree(self, quantization, tolerance):
    tokens = jnp.asarray(np.random.default_rng(1).integers(0, 2301, (2, 24)))

    def run(weights):
      x, _ = model.prefill(weights, _MODEL, tokens, 'float32')
      return model.logits(weights, _MODEL, x)

    alone = jax.jit(run)(_weights(quantization))
    for shape in _MESHES:
      mesh = sharding.make_mesh(shape)
      weights = sharding.pad(mesh, _weights(quantization, stacked=True))
      got = jax.jit(run)(sharding.shard(mesh, weights))
      self.assertTrue(np.isneginf(got[..., 2301:]).all())
      padded = 2560 if shape[2] == 4 else 2304
      self.assertEqual(got.shape[-1], padded if shape[2] > 1 else 2301)
      difference = np.abs(got[..., :2301] - alone)
      # In int8 a different last bit may change the rounding of an activation.
      worst = difference.mean() if quantization == 'int8' else difference.max()
      self.assertLess(worst, tolerance)

  def test_each_device_holds_its_part(self):
    mesh = sharding.make_mesh((1, 2, 2))
    for quantization in (None, 'int8'):
      whole = sharding.pad(mesh, _weights(quantization, stacked=True))
      placed = sharding.shard(mesh, whole)
      parts = jax.tree.map(
        lambda w: w.addressable_shards[0].data.size / w.size, placed
      )
      layer = parts.layers
      for matrix in (layer.qkv, layer.post, layer.up, layer.down, parts.head):
        self.assertEqual(jax.tree.leaves(matrix)[0], 0.5)
      self.assertEqual((parts.embedding, parts.final_norm.scale), (0.5, 1))
    block = cache.empty_block(_MODEL, 4, 8, 'float32', stacked=True)
    keys = sharding.shard(mesh, block).keys
    self.assertEqual(keys.addressable_shards[0].data.shape, (2, 2, 2, 16, 8))

  @parameterized.parameters((None, 1), ('int8', 2))
  def test_collectives_of_a_decode_step(self, quantization, per_layer):
    """Counts collectives; int8 needs two, because sums wait for row scales."""
    mesh = sharding.make_mesh((1, 1, 4))
    weights = sharding.pad(mesh, _weights(quantization, stacked=True))
    run = executables.Executables(
      state.Settings(_MODEL, _ENGINE), weights, mesh
    )
    text = run.lower(program_keys.Decode(4)).compile().as_text()
    matches = [m for m in map(_COLLECTIVE.search, text.splitlines()) if m]
    # The loop over the steps contains the loop over the layers.
    layer = [m['kind'] for m in matches if m['name'].count('while/body') == 2]
    self.assertEqual(layer, ['all-reduce'] * per_layer)
    step = [m for m in matches if m['name'].count('while/body') == 1]
    self.assertLen(matches, len(layer) + len(step))
    self.assertNotEmpty(step)
    # Only the best logits of each block are gathered for each beam.
    for m in step:
      elements = [
        np.prod(json.loads(d)) for d in re.findall(r'\[[\d,]+\]', m['type'])
      ]
      self.assertLessEqual(max(elements), 16 * 8 * 64)
      if m['kind'] != 'all-reduce':
        self.assertEqual((m['kind'], max(elements)), ('all-gather', 16 * 40))

  def test_sizes_that_do_not_divide_are_refused(self):
    with self.assertRaisesRegex(
      ValueError, 'needs 8 devices, but there are only 4'
    ):
      sharding.make_mesh((1, 2, 4))
    with self.assertRaisesRegex(ValueError, r'\[1, 4\], but must have one'):
      sharding.make_mesh((1, 4))
    mesh = sharding.make_mesh((1, 2, 2))
    for change, slots, message in (
      (dict(hidden_dim=63), 4, 'hidden_dim is 63, but .* into 2 parts'),
      ({}, 5, 'num_slots is 5'),
    ):
      with self.assertRaisesRegex(ValueError, message):
        sharding.check(mesh, dataclasses.replace(_MODEL, **change), slots)
    joined = dataclasses.replace(
      _MODEL,
      architecture=architecture.Architecture(qk_norm=architecture.ALL),
    )
    with self.assertRaisesRegex(ValueError, 'heads into 2 parts, but qk_norm'):
      sharding.check(mesh, joined, 4)
    sharding.check(sharding.make_mesh((2, 2, 1)), joined, 4)


if __name__ == '__main__':
  absltest.main()
