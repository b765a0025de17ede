from absl.testing import absltest

from benchmarks import request_sets


class RequestSetsTest(absltest.TestCase):
  def test_ragged_lengths_are_the_fields(self):
    requests = request_sets.ragged(4000, 256, 1000)
    outputs = [r.max_new for r in requests]
    self.assertGreaterEqual(min(outputs), 30)
    self.assertLessEqual(max(outputs), 128)
    self.assertAlmostEqual(sum(outputs) / len(outputs), 69, delta=1)
    prompts = [len(r.tokens) for r in requests]
    self.assertGreaterEqual(min(prompts), 32)
    self.assertLessEqual(max(prompts), 256 * 1919 / 893)
    self.assertAlmostEqual(sum(prompts) / len(prompts), 256, delta=8)
    self.assertTrue(all(r.exact for r in requests))
    self.assertLess(max(max(r.tokens) for r in requests), 999)

  def test_smaller_sets_begin_larger_ones(self):
    large = request_sets.ragged(20, 64, 100)
    self.assertEqual(request_sets.ragged(5, 64, 100), large[:5])

  def test_fixed_requests_are_alike_in_length_alone(self):
    requests = request_sets.fixed(3, 10, 7, 100)
    self.assertEqual({len(r.tokens) for r in requests}, {10})
    self.assertEqual({(r.min_new, r.max_new) for r in requests}, {(7, 7)})
    self.assertLen({r.tokens for r in requests}, 3)


if __name__ == '__main__':
  absltest.main()
