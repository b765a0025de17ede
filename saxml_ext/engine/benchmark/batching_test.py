import time

from absl.testing import absltest
from absl.testing import parameterized

from saxml_ext.engine.benchmark import batching
from saxml_ext.engine.benchmark import workload


def _request(prompt, output):
  return workload.Request((1,) * prompt, output, output)


_LENGTHS = [(5, 9), (3, 4), (8, 2), (5, 3), (1, 9), (2, 2), (9, 9), (4, 1)]
_REQUESTS = [_request(*lengths) for lengths in _LENGTHS]


def _cut(order, size):
  return batching.Batching(order, size).cut(_REQUESTS)


class BatchingTest(parameterized.TestCase):

  @parameterized.parameters("prompt", "output", "both")
  def test_answers_keep_the_requests_order_and_limits(self, order):
    sizes = []

    def generate(batch):
      sizes.append(len(batch))
      longest = max(r.max_new for r in batch)
      return [[len(r.tokens)] * longest for r in batch]

    answers = batching.run(_REQUESTS, batching.Batching(order, 3), generate)
    self.assertEqual(answers, [[p] * n for p, n in _LENGTHS])
    self.assertEqual(sizes, [3, 3, 2])

  def test_orders(self):
    def prompts(order):
      return [[_LENGTHS[i] for i in batch] for batch in _cut(order, 2)]

    self.assertEqual(prompts("prompt")[0], [(1, 9), (2, 2)])
    self.assertEqual(prompts("output")[0], [(4, 1), (2, 2)])
    lengths = [[_LENGTHS[i][0] for i in b] for b in _cut("equal", 2)]
    self.assertEqual(lengths, [[1], [2], [3], [4], [5, 5], [8], [9]])
    # One group of four batches holds all eight.
    self.assertEqual(prompts("both"), prompts("prompt"))

  def test_chooses_what_is_fastest(self):
    requests = [_request(4, 1 + i % 16) for i in range(64)]

    def generate(batch):
      # As an engine whose step costs the same however many it decodes.
      steps = max(r.max_new for r in batch)
      end = time.process_time() + 1e-4 * (steps + 4)
      while time.process_time() < end:
        pass
      return [[1] * steps for _ in batch]

    chosen = batching.choose(requests, ("prompt", "output"), (2, 8), generate)
    self.assertEqual(chosen.size, 8)
    alike = [_request(4, 4)] * 5
    self.assertEqual(batching.choose(alike, (), (), generate).size, 5)


if __name__ == "__main__":
  absltest.main()
