"""Tests of near misses."""

from absl.testing import absltest

from saxml_ext.common import near_misses

_KNOWN = (
  'lm.params.gptj.GPTJ',
  'lm.params.gptj.GPTJ4',
  'lm.params.llama.Llama',
)


class NearMissesTest(absltest.TestCase):
  def test_slip_of_the_pen(self):
    self.assertEqual(
      near_misses.of('lm.params.llama.Lama', _KNOWN), ['lm.params.llama.Llama']
    )

  def test_class_name_alone_comes_first(self):
    self.assertEqual(near_misses.of('gptj4', _KNOWN), ['lm.params.gptj.GPTJ4'])
    self.assertEqual(
      near_misses.of('lm.params.gptj4.GPTJ', _KNOWN)[0], 'lm.params.gptj.GPTJ'
    )

  def test_nothing_is_near(self):
    self.assertEqual(near_misses.of('something.else.Bert', _KNOWN), [])

  def test_at_most_three(self):
    known = [f'a.b.Model{i}' for i in range(9)]
    self.assertLen(near_misses.of('a.b.Model', known), 3)

  def test_absurd_lengths_are_not_compared(self):
    self.assertEqual(near_misses.of('a' * 10**6, ['a' * 10**6 + 'b']), [])


if __name__ == '__main__':
  absltest.main()
