"""Tests the bounds of figures and their text."""

import json

from absl.testing import absltest

from tests.reliability.results import figures


class FiguresTest(absltest.TestCase):
  def test_figures_are_compared_with_their_bounds(self):
    for figure, met, goal, reached in (
      (figures.Figure('a', 1.25, 's', most=2), True, 'at most 2 s', '1.25 s'),
      (figures.Figure('a', 2.5, 's', most=2), False, 'at most 2 s', '2.5 s'),
      (figures.Figure('a', 89, '%', least=90), False, 'at least 90 %', '89 %'),
      (figures.Figure('a', 12345.6, least=3), True, 'at least 3', '12,346'),
      (figures.Figure('a', 7), True, '', '7'),
      (figures.none_of('a', []), True, '0', '0'),
      (figures.none_of('a', ['x']), False, '0', '1'),
      (figures.all_of('a', 199, 200), False, '200', '199'),
      (figures.all_of('a', 200, 200), True, '200', '200'),
      (
        figures.Figure('a', 3, least=1, most=2),
        False,
        'at least 1, at most 2',
        '3',
      ),
    ):
      self.assertEqual(figure.met, met, figure)
      self.assertEqual(figure.goal, goal)
      self.assertEqual(figure.reached, reached)

  def test_nan_and_infinity_miss_every_bound(self):
    self.assertFalse(figures.Figure('a', float('nan'), most=1).met)
    self.assertFalse(figures.Figure('a', float('inf'), most=1).met)

  def test_unfinished_outcome_is_not_met(self):
    good = figures.Figure('a', 1, most=1)
    bad = figures.Figure('b', 2, most=1)
    self.assertTrue(figures.Outcome('1', 'full', (good,)).met)
    self.assertFalse(figures.Outcome('1', 'full', (good, bad)).met)
    self.assertFalse(figures.Outcome('1', 'full', (good,), 'it broke').met)

  def test_outcomes_survive_json(self):
    outcome = figures.Outcome(
      '5', 'short', (figures.Figure('a', 1.5, 's', most=2),), machine='m'
    )
    text = json.dumps(outcome.to_json())
    self.assertEqual(figures.from_json(json.loads(text)), outcome)


if __name__ == '__main__':
  absltest.main()
