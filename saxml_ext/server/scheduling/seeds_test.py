"""Tests for seeds."""

from absl.testing import absltest
import numpy as np

from saxml_ext.engine import request as request_lib
from saxml_ext.server.scheduling import seeds
from saxml_ext.server.testing import fake_runner


def _request(seed: int | None = None) -> request_lib.Request:
  return request_lib.Request(np.array([1, 2], np.int32), seed=seed)


class SeedsTest(absltest.TestCase):
  def _seeds(self, seed: int, *given: int | None) -> list[int | None]:
    runner = fake_runner.FakeRunner(num_slots=len(given))
    seeded = seeds.Seeded(runner, seed)
    seeded.prefill_and_insert(
      {slot: _request(value) for slot, value in enumerate(given)}
    )
    return [request.seed for request in runner.admissions[0]]

  def test_requests_without_a_seed_get_one(self):
    first, given, second = self._seeds(1234, None, 7, None)
    self.assertEqual(given, 7)
    self.assertNotEqual(first, second)
    for seed in (first, second):
      self.assertBetween(seed, 0, 2**32 - 1)

  def test_the_same_seed_gives_the_same_ones(self):
    self.assertEqual(self._seeds(1, None, None), self._seeds(1, None, None))
    self.assertNotEqual(self._seeds(1, None), self._seeds(2, None))

  def test_all_else_is_the_engines(self):
    runner = fake_runner.FakeRunner(num_slots=3)
    seeded = seeds.Seeded(runner, 1)
    self.assertEqual(seeded.num_slots, 3)
    seeded.prefill_and_insert({1: _request()})
    seeded.release(1)
    self.assertEqual(runner.released, [1])


if __name__ == '__main__':
  absltest.main()
