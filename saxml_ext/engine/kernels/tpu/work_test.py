"""Tests of the list of blocks that a decode step reads."""

from absl.testing import absltest
import jax
import jax.numpy as jnp
import numpy as np

from saxml_ext.engine.kernels.tpu import work as work_lib

_BEAMS, _PROMPT_KEYS, _PROMPT_BLOCKS, _SUFFIX_KEYS = 2, 8, 4, 4


def _plan(reach, seen):
  """Work, and the entries that it should have.

  Args:
    reach: tokens of each slot's prompt.
    seen: by slot, which keys of the suffix its second beam sees.
  """
  mask = np.zeros((len(reach), _BEAMS, 12), bool)
  expected = []
  for query, (tokens, keys) in enumerate(zip(reach, seen)):
    mask[query, 1, keys] = True
    if tokens < 0:
      continue
    blocks = range(max(1, -(-tokens // _PROMPT_KEYS)))
    expected += [(query, 'prompt', block) for block in blocks]
    live = sorted({key // _SUFFIX_KEYS for key in keys})
    expected += [(query, 'suffix', block) for block in live]
  plan = jax.jit(work_lib.plan, static_argnums=(3, 4, 5))
  work = plan(
    jnp.asarray(reach, jnp.int32),
    jnp.asarray(mask),
    jnp.arange(len(reach), dtype=jnp.int32),
    _PROMPT_BLOCKS,
    _PROMPT_KEYS,
    _SUFFIX_KEYS,
  )
  return jax.tree.map(np.asarray, work), expected


def _items(work):
  items = []
  for i in range(work.count[0]):
    query, entry = work.query[i], work.entry[i]
    if entry < _PROMPT_BLOCKS:
      items.append((query, 'prompt', work.prompt_block[i]))
      assert (work.prompt_query[i], work.prompt_block[i]) == (query, entry)
    else:
      items.append((query, 'suffix', work.suffix_block[i]))
      assert work.suffix_query[i] == query
      assert work.suffix_block[i] == entry - _PROMPT_BLOCKS
  return items


class WorkTest(absltest.TestCase):
  def test_each_needed_block_once(self):
    work, expected = _plan(
      [8, -1, 9, 1, 32], [[0, 11], [3], [4], [7, 8], [0, 5, 10]]
    )
    self.assertEqual(_items(work), expected)
    self.assertEqual(work.query[len(expected)], -1)

  def test_one_block_is_fetched_for_each_item(self):
    work, expected = _plan([20, 16, -1, 3], [[1], [2, 6], [0], [9]])
    for query, block in (
      (work.prompt_query, work.prompt_block),
      (work.suffix_query, work.suffix_block),
    ):
      places = list(zip(query, block))[: len(expected)]
      changes = sum(a != b for a, b in zip(places, places[1:]))
      kind = 'prompt' if query is work.prompt_query else 'suffix'
      self.assertEqual(changes + 1, sum(kind == k for _, k, _ in expected))

  def test_without_work_there_is_one_item(self):
    work, _ = _plan([-1, -1], [[0], [5]])
    self.assertEqual(work.count.tolist(), [1])
    for field in work[1:-3]:
      self.assertBetween(int(field[0]), 0, 7)


if __name__ == '__main__':
  absltest.main()
