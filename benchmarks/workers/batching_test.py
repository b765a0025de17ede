from collections.abc import Callable, Sequence
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized

from benchmarks import workload
from benchmarks.workers import batching
from benchmarks.workers import trials


def _request(prompt, output):
  return workload.Request((1,) * prompt, output, output)


_LENGTHS = [(5, 9), (3, 4), (8, 2), (5, 3), (1, 9), (2, 2), (9, 9), (4, 1)]
_REQUESTS = [_request(*lengths) for lengths in _LENGTHS]


def _cut(order, size):
  return batching.Batching(order, size).cut(_REQUESTS)


class BatchingTest(parameterized.TestCase):
  @parameterized.parameters('prompt', 'output', 'both')
  def test_answers_keep_the_requests_order_and_limits(self, order):
    sizes = []

    def generate(batch):
      sizes.append(len(batch))
      longest = max(r.max_new for r in batch)
      return [[len(r.tokens)] * longest for r in batch]

    answers = batching.run(_REQUESTS, batching.Batching(order, 3), generate)
    self.assertEqual(answers, [[p] * n for p, n in _LENGTHS])
    self.assertEqual(sizes, [3, 3, 2])

  def test_batches_follow_their_order(self):
    def prompts(order):
      return [[_LENGTHS[i] for i in batch] for batch in _cut(order, 2)]

    self.assertEqual(prompts('prompt')[0], [(1, 9), (2, 2)])
    self.assertEqual(prompts('output')[0], [(4, 1), (2, 2)])
    lengths = [[_LENGTHS[i][0] for i in b] for b in _cut('equal', 2)]
    self.assertEqual(lengths, [[1], [2], [3], [4], [5, 5], [8], [9]])
    # A group of four batches contains all eight requests.
    self.assertEqual(prompts('both'), prompts('prompt'))

  def test_chooses_the_fastest_batching(self):
    requests = [_request(4, 1 + i % 16) for i in range(64)]
    # A step of this engine costs the same for any size of the batch.
    engine = _Engine(lambda batch: max(r.max_new for r in batch) + 4)
    with engine.clock():
      chosen = batching.choose(
        requests, ('prompt', 'output'), (2, 8), engine.generate
      )
    # All prompts have the same length, so both orders are equal.
    self.assertEqual(chosen.size, 8)

  @parameterized.parameters(
    # The cost of a step grows with the batch. The best batches have all
    # requests, two, or one.
    (lambda size: 1, 6),
    (lambda size: 1 if size <= 2 else size, 2),
    (lambda size: size**2, 1),
  )
  def test_equal_requests_are_tried_too(self, cost, expected):
    alike = [_request(4, 4)] * 6
    engine = _Engine(lambda batch: 4 * cost(len(batch)))
    with engine.clock():
      chosen = batching.choose(
        alike, ('output', 'prompt'), (1, 2, 4, 8), engine.generate
      )
    self.assertEqual(chosen, batching.Batching('prompt', expected))
    self.assertEqual(engine.sizes, {1, 2, 4, 6})

  def test_one_choice_needs_no_trial(self):
    engine = _Engine(lambda batch: 1)
    chosen = batching.choose([_request(4, 4)] * 5, (), (8,), engine.generate)
    self.assertEqual(chosen, batching.Batching('prompt', 5))
    self.assertEmpty(engine.sizes)


class _Engine:
  """An engine that answers at once, with a clock that counts costs."""

  def __init__(self, cost: Callable[[Sequence[workload.Request]], float]):
    self._cost = cost
    self._now = 0.0
    self.sizes: set[int] = set()

  def clock(self):
    return mock.patch.object(
      trials.time, 'process_time', side_effect=lambda: self._now
    )

  def generate(self, batch: Sequence[workload.Request]) -> list[list[int]]:
    self._now += self._cost(batch)
    self.sizes.add(len(batch))
    return [[1] * max(r.max_new for r in batch) for _ in batch]


if __name__ == '__main__':
  absltest.main()
