"""Tests the benchmarks that summarize news."""

from absl.testing import absltest

from harness.rules import rounds
from harness.rules import summaries


class SummariesTest(absltest.TestCase):
  def test_searches(self):
    # Source: gen_kwargs of language/gpt-j and the sampling parameters of
    # language/llama3.1-8b.
    gptj, llama = (
      summaries.BENCHMARKS[name] for name in (rounds.GPTJ, rounds.LLAMA)
    )
    self.assertEqual(
      gptj.generation,
      {
        'num_beams': 4,
        'early_stopping': True,
        'max_new_tokens': 128,
        'min_new_tokens': 30,
      },
    )
    self.assertEqual(
      llama.generation,
      {'num_beams': 1, 'max_new_tokens': 128, 'min_new_tokens': 1},
    )
    self.assertFalse(llama.attributes['USE_BEAM_SEARCH'])
    self.assertEqual(llama.attributes['NUM_SAMPLES'], 1)
    self.assertEqual(gptj.attributes['BEAM_SIZE'], 4)

  def test_families(self):
    for benchmark in summaries.BENCHMARKS.values():
      self.assertIs(summaries.of_family(benchmark.family), benchmark)
    self.assertIsNone(summaries.of_family('bert'))


if __name__ == '__main__':
  absltest.main()
