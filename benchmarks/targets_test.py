from absl.testing import absltest

from benchmarks import targets


def _row(engine, dtype, requests, ratio):
  return {
    'engine': engine,
    'dtype': dtype,
    'requests': requests,
    'ours': 'ours_int8',
    'ours_over_this': ratio,
  }


class TargetsTest(absltest.TestCase):
  def test_targets_by_contender_and_requests(self):
    rows = [
      _row('ours', 'int8', 8, 1.0),
      _row('ct2', 'int8', 1, 0.1),
      _row('ct2', 'int8', 8, 1.31),
      _row('llama_cpp', 'q8_0', 1, 0.96),
      _row('llama_cpp', 'q8_0', 32, 1.49),
      _row('llama_cpp', 'q4_0', 32, 0.2),
    ]
    results = list(targets.check('llama', rows))
    self.assertEqual([met for met, _ in results], [True, True, False])
    self.assertEqual(
      results[2][1],
      'target MISSED: with 32 requests, ours_int8 is 1.49 times as fast as'
      ' llama_cpp_q8_0; the target is 1.5.',
    )
    self.assertEqual(list(targets.check('gptj', rows)), [])


if __name__ == '__main__':
  absltest.main()
