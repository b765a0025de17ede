"""Tests of stop texts in growing texts."""

import random

from absl.testing import absltest
from absl.testing import parameterized

from saxml_ext.server.completion import answers


def _cut(stops, parts) -> tuple[list[str], str]:
  cutter = answers.Cutter(stops)
  passed = [cutter.feed(part) for part in parts]
  if not cutter.stop:
    passed.append(cutter.finish())
  return passed, cutter.stop


class CutterTest(parameterized.TestCase):
  @parameterized.parameters(
    (['\n\n'], ['a\n', 'b\n', '\nc'], ['a', '\nb', ''], '\n\n'),
    (['END'], ['the E', 'N', 'd', ' EN'], ['the ', '', 'ENd', ' ', 'EN'], ''),
    (['END'], ['xENDy', 'z'], ['x', ''], 'END'),
    (['abcd', 'bc'], ['ab', 'c', 'd'], ['', 'a', ''], 'bc'),
    (['bc', 'abc'], ['abc'], [''], 'abc'),
    (['aab'], ['aaa', 'b'], ['a', ''], 'aab'),
    ([], ['a', 'b'], ['a', 'b', ''], ''),
  )
  def test_text_is_cut_at_the_first_stop_text(self, stops, parts, passed, stop):
    self.assertEqual(_cut(stops, parts), (passed, stop))

  def test_result_does_not_depend_on_the_split(self):
    rng = random.Random(0)
    for _ in range(2000):
      text = ''.join(rng.choices('ab', k=12))
      stops = [
        ''.join(rng.choices('ab', k=rng.randrange(2, 6))) for _ in range(2)
      ]
      cuts = sorted(rng.sample(range(13), 3))
      parts = [text[a:b] for a, b in zip([0, *cuts], [*cuts, 12])]
      whole, stop = _cut(stops, list(text))
      passed, other = _cut(stops, parts)
      self.assertEqual((''.join(passed), other), (''.join(whole), stop))
      self.assertTrue(text.startswith(''.join(passed) + stop))
      self.assertFalse(any(s in ''.join(passed) for s in stops))


if __name__ == '__main__':
  absltest.main()
