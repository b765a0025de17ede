"""Tests of the list of blocks that a decode step reads."""

from absl.testing import absltest
import jax
import jax.numpy as jnp
import numpy as np

from saxml_ext.engine.kernels.tpu import block_list as work_lib

_BLOCKS = work_lib.Blocks(prompt=8, suffix=4, chunk=2)
_PROMPT, _SUFFIX, _BEAMS = 30, 12, 2


def _plan(lengths, seen):
  """Returns the work of slots and the expected items.

  Args:
    lengths: The number of tokens in each slot's prompt.
    seen: The keys of the suffix that the second beam of each slot sees.
  """
  visible = np.zeros((len(lengths), _BEAMS, _SUFFIX), bool)
  expected = []
  for query, (tokens, keys) in enumerate(zip(lengths, seen)):
    visible[query, 1, keys] = True
    if tokens < 0:
      continue
    for block in range(-(-tokens // 8)):
      left = min(tokens - 8 * block, 8)
      expected.append((query, block, -(-left // 2)))
    expected += [(query, b, 0) for b in sorted({key // 4 for key in keys})]
  plan = jax.jit(work_lib.plan, static_argnums=(3, 4))
  slots = jnp.arange(len(lengths), dtype=jnp.int32)
  work = plan(
    jnp.asarray(lengths), jnp.asarray(visible), slots, _PROMPT, _BLOCKS
  )
  return jax.tree.map(np.asarray, work), expected


class WorkTest(absltest.TestCase):
  def test_needed_blocks_are_listed_once(self):
    lengths = [8, -1, 9, 1, 30]
    seen = [[0, 11], [3], [4], [7, 8], [0, 5, 10]]
    work, expected = _plan(lengths, seen)
    items = list(zip(work.query, work.block, work.chunks))
    self.assertEqual(items[: work.count[0]], expected)
    self.assertEqual(work.query[len(expected)], -1)
    self.assertEqual(work.mask.shape, (5, 3, 2, 4))
    for slot, keys in enumerate(seen):
      np.testing.assert_array_equal(np.flatnonzero(work.mask[slot, :, 1]), keys)
      self.assertFalse(work.mask[slot, :, 0].any())

  def test_list_holds_all_blocks(self):
    work, expected = _plan([30, 30], [range(12)] * 2)
    self.assertLen(expected, 2 * (4 + 3))
    items = list(zip(work.query, work.block, work.chunks))
    self.assertEqual(items, expected)
    self.assertEqual(work.query[-1], -1)

  def test_unused_slots_need_no_block(self):
    work, _ = _plan([-1, -1], [[0], [5]])
    self.assertEqual(work.count.tolist(), [0])


if __name__ == '__main__':
  absltest.main()
