"""Tests batches of prompts, and prefill with split slots on four CPUs."""

import re

from absl.testing import absltest
from absl.testing import parameterized
import jax
import jax.numpy as jnp
import numpy as np

from saxml_ext.engine import config as config_lib
from saxml_ext.engine import executables
from saxml_ext.engine import logical
from saxml_ext.engine import program_keys
from saxml_ext.engine import request as request_lib
from saxml_ext.engine import sharding
from saxml_ext.engine import state
from saxml_ext.engine import weights as weights_lib
from saxml_ext.engine.attention import cache
from saxml_ext.engine.attention import slot_parts
from saxml_ext.engine.testing import random_model

jax.config.update('jax_num_cpu_devices', 4)

_MODEL = config_lib.ModelConfig(
  num_layers=2,
  model_dim=32,
  num_heads=4,
  head_dim=8,
  hidden_dim=64,
  rotary_dim=4,
  vocab_size=512,
)
_ENGINE = config_lib.EngineConfig(
  eos_id=0,
  num_slots=8,
  max_prompt=16,
  prompt_buckets=(16,),
  prefill_batches=(1, 2),
  max_new_tokens=4,
  min_new_tokens=0,
  suffix_block=4,
)
# Matches the name of the operation that caused a collective.
_EXCHANGE = re.compile(
  r' (?:all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)'
  r'(?:-start)?\(.*op_name="[^"]*/(\w+)"'
)


class BatchesTest(parameterized.TestCase):
  @parameterized.parameters(
    # One part: the order is kept, and the last slot fills its batch.
    (1, (2,), [3, 0, 7], [[3, 0], [7]], [[3, 0], [7, 7]]),
    # Two parts: slots 0 to 3 and 4 to 7. Slot 8 does not exist.
    (2, (1,), [0, 5, 1, 2], [[0, 5], [1], [2]], [[0, 5], [1, 8], [2, 8]]),
    (2, (1, 2), [6, 0, 5], [[0, 6, 5]], [[0, 8, 6, 5]]),
    (4, (1,), [7], [[7]], [[8, 8, 8, 7]]),
  )
  def test_rows_are_in_the_parts_of_their_slots(
    self, parts, sizes, slots, batches, rows
  ):
    rules = slot_parts.Batches(8, parts, sizes)
    self.assertEqual(rules.group(slots), batches)
    self.assertEqual([rules.rows(batch) for batch in batches], rows)


def _requests(*slots: int) -> dict[int, request_lib.Request]:
  return {slot: request_lib.Request(np.array([slot])) for slot in slots}


def _slots(taken) -> list[tuple[int, list[int]]]:
  return [(bucket, list(requests)) for bucket, requests in taken]


def _queue(
  parts: int, size: int
) -> slot_parts.PromptQueue[request_lib.Request]:
  return slot_parts.PromptQueue(slot_parts.Batches(8, parts, (size,)))


class PromptQueueTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    # The parts are slots 0 to 3 and slots 4 to 7.
    self.queue = _queue(parts=2, size=1)

  def test_prompts_of_other_parts_share_a_batch(self):
    self.queue.add(512, _requests(0, 1), now=0)
    self.queue.add(1024, _requests(4), now=0)
    self.assertEqual(self.queue.take(0, hurry=False), [])
    self.assertEqual(self.queue.slots, {0, 1, 4})
    self.queue.add(512, _requests(5), now=1)
    taken = self.queue.take(1, hurry=False)
    self.assertEqual(_slots(taken), [(512, [0, 5])])
    self.assertEqual(self.queue.slots, {1, 4})

  def test_wait_is_limited(self):
    self.queue.add(512, _requests(0), now=10)
    self.queue.add(512, _requests(1), now=13)
    self.assertEqual(self.queue.take(13, hurry=False), [])
    self.assertEqual(
      _slots(self.queue.take(14, hurry=False)), [(512, [0]), (512, [1])]
    )
    self.assertEmpty(self.queue.slots)
    # The wait starts again in a bucket that was empty.
    self.queue.add(512, _requests(2), now=20)
    self.assertEqual(self.queue.take(20, hurry=False), [])

  def test_idle_engine_takes_prompts_at_once(self):
    self.queue.add(512, _requests(0), now=0)
    self.assertEqual(_slots(self.queue.take(0, hurry=True)), [(512, [0])])

  def test_discarded_prompt_is_not_taken(self):
    self.queue.add(512, _requests(0, 4), now=0)
    self.queue.discard(4)
    self.queue.discard(7)
    self.assertEqual(self.queue.take(0, hurry=False), [])
    self.assertLen(self.queue, 1)

  def test_single_part_takes_prompts_at_once(self):
    queue = _queue(parts=1, size=2)
    queue.add(512, _requests(0, 1, 7), now=0)
    self.assertEqual(
      _slots(queue.take(0, hurry=False)), [(512, [0, 1]), (512, [7])]
    )


class SplitTest(parameterized.TestCase):
  @parameterized.parameters(
    ((1, 4, 1), 16, 16),
    ((2, 1, 2), 16, 16),
    ((1, 2, 2), 16, 20),
    ((1, 2, 2), 130, 300),  # Written in whole tiles.
  )
  def test_prompts_are_kept_in_their_slots(self, shape, length, room):
    mesh = sharding.make_mesh(shape)
    parts = shape[0] * shape[1]
    batches = slot_parts.Batches(8, parts, (2,))
    slots = batches.rows([6, 1, 7])
    rng = np.random.default_rng(0)
    keys = rng.normal(size=(2 * parts, 4, 8, length)).astype(np.float32)
    values = rng.normal(size=(2 * parts, 4, length, 8)).astype(np.float32)
    before = jax.tree.map(
      lambda x: x + 1,
      cache.empty_block(_MODEL, 8, room, 'float32', stacked=True),
    )

    @jax.jit
    def insert(block, slots, keys, values):
      slots, keys, values = slot_parts.split((slots, keys, values))
      (block,) = cache.insert_prompts(
        (block,), jnp.int32(1), slots, 0, keys, values
      )
      return block, cache.take_prompts(block.keys[1, ..., :length], slots)

    with jax.set_mesh(mesh):
      block, read = insert(
        sharding.shard(mesh, before), np.int32(slots), keys, values
      )
    expected = np.ones((8, 4, 8, length), np.float32)
    for row, slot in enumerate(slots):
      if slot < 8:
        expected[slot] = keys[row]
        np.testing.assert_array_equal(read[row], keys[row])
        kept = block.values[1, slot, :, :length]
        np.testing.assert_array_equal(kept, values[row])
    np.testing.assert_array_equal(block.keys[1, ..., :length], expected)
    self.assertTrue((block.keys[0] == 1).all())

  def test_a_batch_that_does_not_divide_is_not_split(self):
    with jax.set_mesh(sharding.make_mesh((1, 4, 1))):
      self.assertEqual(logical.parts('slots'), 4)
      self.assertEqual(slot_parts.parts(8), 4)
      self.assertEqual(slot_parts.parts(6), 1)
    self.assertEqual(slot_parts.parts(8), 1)

  def test_parts_exchange_nothing(self):
    """Checks that each of four devices prefills a fourth of a batch alone."""
    mesh = sharding.make_mesh((1, 4, 1))
    variables = random_model.variables(_MODEL)
    for stacked in (False, True):
      weights = weights_lib.from_pax(variables, _MODEL)
      weights = weights_lib.stack(weights) if stacked else weights
      run = executables.Executables(
        state.Settings(_MODEL, _ENGINE), weights, mesh
      )
      key = program_keys.PrefillAndInsert(8, 0, 16)
      self.assertIn(key, run.keys())
      compiled = run.lower(key).compile()
      exchanges = set(_EXCHANGE.findall(compiled.as_text()))
      # XLA for CPU does not split top_k, neither in prefill nor in decoding.
      self.assertLessEqual(exchanges, {'top_k'})
      flops = compiled.cost_analysis()['flops']
      alone = executables.Executables(run.settings, weights)
      whole = alone.lower(program_keys.PrefillAndInsert(2, 0, 16)).compile()
      # If each device prefilled the whole batch, the ratio would be 4.
      self.assertLess(flops, 1.5 * whole.cost_analysis()['flops'])


if __name__ == '__main__':
  absltest.main()
