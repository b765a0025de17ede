"""Tests the attempts of a call, and the choice among replicas."""

import collections
import itertools
import time
from unittest import mock

from absl.testing import absltest
import grpc

from saxml_ext.client.transport import attempts as attempts_lib
from saxml_ext.client.transport import blocking
from saxml_ext.common import errors
from saxml_ext.common import grpc_util

_RETRIED = {grpc.StatusCode.UNAVAILABLE}


class _RpcError(grpc.RpcError):
  """The error that a stub raises."""

  def __init__(self, code: grpc.StatusCode):
    super().__init__()
    self._code = code

  def code(self) -> grpc.StatusCode:
    return self._code

  def details(self) -> str:
    return 'told'

  def trailing_metadata(self) -> tuple[()]:
    return ()


def _attempts(timeout: float | None) -> attempts_lib.Retry:
  return attempts_lib.Retry('lm.generate of /sax/test/m', timeout, _RETRIED)


class RetryTest(absltest.TestCase):
  def test_delays_grow_to_a_limit(self):
    attempts = _attempts(None)
    delays = [attempts.delay_after(errors.Unavailable('x')) for _ in range(200)]
    for delay, n in zip(delays, itertools.count()):
      center = min(0.010 * 1.1**n, 20.0)
      self.assertBetween(delay, 0.5 * center, 1.5 * center)
    self.assertGreater(len(set(delays)), 100)

  def test_delay_is_at_least_that_of_the_server(self):
    attempts = attempts_lib.Retry(
      'x', None, {grpc.StatusCode.RESOURCE_EXHAUSTED}
    )
    full = errors.ResourceExhausted('full', retry_after=2.0)
    delays = [attempts.delay_after(full) for _ in range(20)]
    self.assertBetween(min(delays), 2.0, 3.0)
    self.assertBetween(max(delays), 2.0, 3.0)
    self.assertGreater(len(set(delays)), 10)
    # The own delay has grown meanwhile, so it exceeds the shorter requested
    # one.
    short = errors.ResourceExhausted('full', retry_after=0.001)
    self.assertGreater(attempts.delay_after(short), 0.5 * 0.010 * 1.1**20)

  def test_full_replica_of_several_causes_no_wait(self):
    attempts = attempts_lib.Retry(
      'x', None, {grpc.StatusCode.RESOURCE_EXHAUSTED}
    )
    full = errors.ResourceExhausted('full', retry_after=2.0)
    self.assertLess(attempts.delay_after(full, has_others=True), 0.02)

  def test_delay_ends_before_the_deadline(self):
    attempts = attempts_lib.Retry(
      'x', 60.0, {grpc.StatusCode.RESOURCE_EXHAUSTED}
    )
    full = errors.ResourceExhausted('full', retry_after=2000.0)
    self.assertLessEqual(attempts.delay_after(full), 30.0)

  def test_other_errors_are_final(self):
    error = errors.Internal('broken')
    with self.assertRaises(errors.Internal) as caught:
      _attempts(None).delay_after(error)
    self.assertIs(caught.exception, error)

  def test_unsent_requests_are_tried_again(self):
    attempts = attempts_lib.Retry('x', None, set())
    attempts.delay_after(errors.Unavailable('no replica'), was_sent=False)
    with self.assertRaises(errors.Unavailable):
      attempts.delay_after(errors.Unavailable('full'))

  def test_final_error_keeps_the_last_cause(self):
    now = time.monotonic()
    with mock.patch.object(time, 'monotonic') as clock:
      clock.return_value = now
      attempts = _attempts(3.0)
      attempts.delay_after(errors.Unavailable('first'))
      attempts.delay_after(errors.Unavailable('second'))
      clock.return_value = now + 3.0
      with self.assertRaisesRegex(
        errors.DeadlineExceeded,
        'lm.generate of /sax/test/m: no answer within 3 s in 3 attempts, '
        'last error: UNAVAILABLE: second',
      ) as caught:
        attempts.delay_after(errors.DeadlineExceeded('Deadline Exceeded'))
    self.assertEqual(str(caught.exception.__cause__), 'second')

  def test_single_slow_attempt_times_out(self):
    attempts = _attempts(0.0)
    with self.assertRaisesRegex(
      errors.DeadlineExceeded, 'no answer within 0 s$'
    ):
      attempts.delay_after(errors.DeadlineExceeded('x'))

  def test_deadline_of_the_server_itself_is_final(self):
    with self.assertRaisesRegex(errors.DeadlineExceeded, 'by the server'):
      _attempts(60.0).delay_after(errors.DeadlineExceeded('by the server'))

  def _run(self, *outcomes, timeout: float | None = None):
    """Runs attempts with these outcomes; returns result, count and delays."""
    todo, pauses = list(outcomes), []

    async def attempt():
      outcome = todo.pop(0)
      if isinstance(outcome, Exception):
        raise outcome
      return outcome

    async def sleep(seconds: float) -> None:
      pauses.append(seconds)

    result = blocking.run(_attempts(timeout).run(attempt, sleep))
    self.assertEmpty(todo)
    return result, pauses

  def test_run_until_an_attempt_succeeds(self):
    result, pauses = self._run(
      _RpcError(grpc.StatusCode.UNAVAILABLE), errors.Unavailable('none'), 'a'
    )
    self.assertEqual(result, 'a')
    self.assertLen(pauses, 2)

  def test_run_ends_with_a_final_error(self):
    with self.assertRaisesRegex(errors.Internal, 'told'):
      self._run(_RpcError(grpc.StatusCode.INTERNAL))
    # A SaxError other than Unavailable is final if the call did not raise it.
    with self.assertRaises(errors.NotFound):
      self._run(errors.NotFound('it is not published'))

  def test_delay_leaves_time_for_an_attempt(self):
    # Sums of times are exact if the clock starts at 0.
    with mock.patch.object(time, 'monotonic', return_value=0.0):
      attempts = _attempts(0.008)
      self.assertLessEqual(attempts.delay_after(errors.Unavailable('x')), 0.004)


def _table() -> attempts_lib.Connections:
  return attempts_lib.Connections(grpc_util.channel)


def _addresses(count: int) -> list[str]:
  return [f'10.0.0.{i}:1' for i in range(count)]


class ReplicasTest(absltest.TestCase):
  def test_busy_replicas_get_fewer_requests(self):
    table = _table()
    first, second = map(table.get, _addresses(2))
    first.begin()
    for _ in range(20):
      self.assertIs(table.choose(_addresses(2), 37, None), second)

  def test_load_is_spread(self):
    table = _table()
    connections = []
    for _ in range(400):
      connection = table.choose(_addresses(4), 37, None)
      connection.begin()
      connections.append(connection)
    counts = collections.Counter(c.address for c in connections)
    for connection in connections:
      connection.end()
    self.assertLen(counts, 4)
    self.assertLess(max(counts.values()) - min(counts.values()), 10)

  def test_failed_replica_is_avoided(self):
    table = _table()
    one, two = _addresses(2)
    for _ in range(20):
      self.assertEqual(table.choose([one, two], 37, one).address, two)
    self.assertEqual(table.choose([one], 37, one).address, one)

  def test_num_conn_limits_the_replicas_used(self):
    table = _table()
    used = {table.choose(_addresses(20), 3, None).address for _ in range(200)}
    self.assertLen(used, 3)

  def test_idle_connections_are_closed(self):
    table = _table()
    connection = table.get('10.0.0.1:1')
    self.assertIs(table.get('10.0.0.1:1'), connection)
    later = connection._last_used + 601
    self.assertTrue(connection.is_idle(later))
    connection.begin()
    self.assertFalse(connection.is_idle(later))
    connection.end()
    self.assertTrue(connection.is_idle(later + 601))


if __name__ == '__main__':
  absltest.main()
