from absl.testing import absltest

from benchmarks import workload
from benchmarks.workers import trials


class TrialsTest(absltest.TestCase):
  def test_chooses_the_fastest_that_works(self):
    rates = {'slow': 1.0, 'fast': 3.0, 'middle': 2.0}

    def rate(name: str) -> float:
      if name == 'broken':
        raise ValueError('no such library')
      return rates[name]

    names = ['broken', 'slow', 'fast', 'middle']
    self.assertEqual(trials.fastest(names, rate), 'fast')
    with self.assertRaisesRegex(RuntimeError, 'broken: no such library'):
      trials.fastest(['broken'], rate)

  def test_a_sample_is_short_and_spread(self):
    requests = [workload.Request((i,), 64, 64) for i in range(100)]
    sample = trials.sample(requests)
    self.assertEqual(
      [r.tokens[0] for r in sample], [6, 18, 31, 43, 56, 68, 81, 93]
    )
    self.assertEqual({(r.min_new, r.max_new) for r in sample}, {(32, 32)})
    short = workload.Request((1, 2), 3, 5)
    self.assertEqual(trials.sample([short]), [short])

  def test_a_choice_is_kept(self):
    directory = self.create_tempdir().full_path
    calls = []

    def choose(candidates):
      calls.append(list(candidates))
      return candidates[1]

    def kept(key, candidates):
      return trials.kept(directory, key, candidates, choose)

    self.assertEqual(kept(('a', 1), [8, 9]), 9)
    self.assertEqual(kept(('a', 1), [8, 9]), 9)
    self.assertEqual(calls, [[8, 9]])
    # A new choice is made for another key, or if the old choice is no candidate
    # any more.
    self.assertEqual(kept(('a', 2), [8, 9]), 9)
    self.assertEqual(kept(('a', 1), [5, 6]), 6)
    self.assertEqual(calls, [[8, 9], [8, 9], [5, 6]])

  def test_large_models_have_short_trials(self):
    request = workload.Request((7,) * 256, 64, 64)
    self.assertEqual(trials.shortened([request], None), [request])
    short = workload.Request((7,) * 64, 4, 4)
    self.assertEqual(trials.sample([request], 4), [short])

  def test_rate_counts_only_requested_tokens(self):
    # An answer may be longer than requested if another one of its batch is.
    batch = [workload.Request((1,), 2, 2), workload.Request((1,), 4, 4)]
    clock = iter([10.0, 12.0])
    with absltest.mock.patch.object(
      trials.time, 'process_time', side_effect=lambda: next(clock)
    ):
      rate = trials.rate([batch], lambda requests: [[7] * 4, [7] * 4])
    self.assertEqual(rate, 3.0)


if __name__ == '__main__':
  absltest.main()
