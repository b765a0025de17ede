"""Tests for the seeds of requests that have none."""

from absl.testing import absltest
import numpy as np

from saxml_ext.engine import request as request_lib
from saxml_ext.server.scheduling import scheduler as scheduler_lib
from saxml_ext.server.scheduling import stats
from saxml_ext.server.testing import fake_runner


def _request(seed: int | None = None) -> request_lib.Request:
  return request_lib.Request(np.array([1, 2], np.int32), seed=seed)


class SeedsTest(absltest.TestCase):
  def _seeds(self, seed: int | None, *given: int | None) -> list[int | None]:
    runner = fake_runner.FakeRunner(num_slots=len(given))
    scheduler = scheduler_lib.Scheduler(
      runner,
      limit=len(given),
      buckets=(10,),
      patience=600.0,
      seed=seed,
      method_stats={'lm.generate': stats.MethodStats()},
      on_failure=self.fail,
    )
    held = [scheduler.generate(_request(value)) for value in given]
    for future in held:
      future.result(600)
    scheduler.close(drain=True)
    return [request.seed for request in runner.admissions[0]]

  def test_requests_without_a_seed_get_one(self):
    first, given, second = self._seeds(1234, None, 7, None)
    self.assertEqual(given, 7)
    self.assertNotEqual(first, second)
    for seed in (first, second):
      self.assertBetween(seed, 0, 2**32 - 1)

  def test_same_seed_gives_the_same_seeds(self):
    self.assertEqual(self._seeds(1, None, None), self._seeds(1, None, None))
    self.assertNotEqual(self._seeds(1, None), self._seeds(2, None))

  def test_other_fields_are_unchanged(self):
    self.assertEqual(self._seeds(None, None, 7), [None, 7])


if __name__ == '__main__':
  absltest.main()
