"""Tests of the limit on pending requests and the order of clients."""

import math
import threading
import time

from absl.testing import absltest
import numpy as np

from saxml_ext.common import errors
from saxml_ext.server.scheduling import scheduler as scheduler_lib
from saxml_ext.server.scheduling import stats
from saxml_ext.server.testing import fake_runner

_LIMIT = 6
_TIMEOUT = 300


class AdmissionTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self.runner = fake_runner.FakeRunner(num_slots=1)
    self.runner.gate.clear()
    methods = ('lm.generate', 'lm.score', 'lm.embed', 'lm.gradient')
    self.stats = {method: stats.MethodStats() for method in methods}
    self.scheduler = scheduler_lib.Scheduler(
      self.runner,
      limit=_LIMIT,
      buckets=(8,),
      method_stats=self.stats,
      on_failure=self.fail,
    )
    self.addCleanup(self.scheduler.close, drain=False)
    self.addCleanup(self.runner.gate.set)

  def _ask(self, number: int, client: str = '', priority: int = 0):
    return self.scheduler.generate(
      fake_runner.Request(np.array([number], np.int32)),
      client=client,
      priority=priority,
    )

  def _occupy(self) -> None:
    """Occupies the only slot with a request, so that all others wait."""
    self._ask(0, client='first')
    while not self.runner.admissions:
      time.sleep(0.001)

  def _admitted(self, requests) -> list[int]:
    """Returns the requests in their order of admission, after all answers."""
    self.runner.gate.set()
    for future in requests:
      future.result(_TIMEOUT)
    return [tokens[0] for tokens in self.runner.admitted()[1:]]

  def test_clients_take_turns(self):
    self._occupy()
    requests = [self._ask(n, client='flood') for n in (1, 2, 3)]
    requests += [self._ask(n, client='other') for n in (11, 12)]
    self.assertEqual(self._admitted(requests), [1, 11, 2, 12, 3])

  def test_urgent_requests_go_first(self):
    self._occupy()
    requests = [
      self._ask(1),
      self._ask(2, priority=5),
      self._ask(3, priority=-1),
    ]
    self.assertEqual(self._admitted(requests), [3, 1, 2])

  def test_flooding_client_is_refused_alone(self):
    self._occupy()
    requests = [self._ask(n, client='flood') for n in range(1, _LIMIT)]
    with self.assertRaises(errors.ResourceExhausted) as caught:
      self._ask(99, client='flood')
    self.assertGreater(caught.exception.retry_after, 0)
    with self.assertRaises(errors.ResourceExhausted):
      self.scheduler.check_admission('lm.generate', 'flood')
    self.scheduler.check_admission('lm.generate', 'other')
    requests += [self._ask(n, client='other') for n in (11, 12, 13)]
    # This is the limit of all clients together, half above the normal limit.
    with self.assertRaises(errors.ResourceExhausted):
      self._ask(14, client='third')
    self.assertLen(self._admitted(requests), _LIMIT + 2)

  def test_texts_of_all_methods_share_a_queue(self):
    text, suffix = np.array([1, 2], np.int32), np.array([3], np.int32)
    self._occupy()
    requests = [
      self.scheduler.score(text, suffix),
      self.scheduler.embed(text),
      self.scheduler.gradient(text, suffix),
      *(self.scheduler.embed(text) for _ in range(_LIMIT - 3)),
    ]
    self.assertEqual(self.scheduler.pending('lm.embed'), _LIMIT - 2)
    self.assertEqual(self.scheduler.pending('lm.gradient'), 1)
    with self.assertRaises(errors.ResourceExhausted):
      self.scheduler.score(text, suffix)
    requests.pop().cancel()
    self.assertEqual(self.scheduler.pending('lm.embed'), _LIMIT - 3)
    self.runner.gate.set()
    score, embedding, gradient = (f.result(_TIMEOUT) for f in requests[:3])
    self.assertEqual(score, gradient[0])
    self.assertEqual(embedding.tolist(), [0.5, 1.0])
    self.assertEqual(list(gradient[1]), ['embeddings'])

  def test_expired_text_never_reaches_the_engine(self):
    self._occupy()
    late = self.scheduler.embed(
      np.array([1], np.int32), time.monotonic() + 0.01
    )
    kept = self.scheduler.embed(np.array([2], np.int32), math.inf)
    threading.Timer(0.05, self.runner.gate.set).start()
    self.assertIsInstance(late.exception(_TIMEOUT), errors.DeadlineExceeded)
    self.assertEqual(kept.result(_TIMEOUT).tolist(), [1.0])
    self.assertEqual(self.stats['lm.embed'].snapshot().expired, 1)


if __name__ == '__main__':
  absltest.main()
