"""Tests invented names."""

import random

from absl.testing import absltest
from absl.testing import parameterized

from bundled.news import names

_KINDS = (names.person, names.last, names.town, names.company)


class NamesTest(parameterized.TestCase):
  @parameterized.parameters(*_KINDS)
  def test_splits_share_no_invented_word(self, draw):
    rng = random.Random(0)
    seen = {w for _ in range(4000) for w in draw(rng, False).split()}
    held_out = {w for _ in range(2000) for w in draw(rng, True).split()}
    self.assertEmpty((seen & held_out) - set(names.COMPANY_TAILS))

  def test_a_word_of_one_split_names_nothing_in_the_other(self):
    rng = random.Random(0)
    for draw in _KINDS:
      for _ in range(500):
        for held_out in (False, True):
          for word in draw(rng, held_out).split():
            if word not in names.COMPANY_TAILS:
              self.assertEqual(names.is_held_out(word), held_out, word)

  def test_there_are_many_names(self):
    rng = random.Random(0)
    drawn = {names.person(rng, True) for _ in range(1000)}
    self.assertGreater(len(drawn), 995)


if __name__ == '__main__':
  absltest.main()
