"""Tests coroutines that occupy no thread."""

from concurrent import futures
import queue
import threading
import time

from absl.testing import absltest

from saxml_ext.client.transport import callbacks
from saxml_ext.common import errors
from saxml_ext.common.telemetry import tracing

_PATIENCE = 120


class _Rpc:
  """A method of a stub whose calls the test answers."""

  def __init__(self):
    self.calls: list[futures.Future] = []
    self.metadata: list[tuple[tuple[str, str], ...]] = []

  def future(self, request, timeout, metadata) -> futures.Future:
    del request, timeout
    self.metadata.append(metadata)
    self.calls.append(futures.Future())
    return self.calls[-1]


class _Watcher:
  """A watcher that learns of a replica when the test announces one."""

  def __init__(self):
    self.known: frozenset[str] = frozenset()
    self.functions = []

  def count(self) -> int:
    return len(self.known)

  def addresses(self, timeout) -> frozenset[str]:
    del timeout
    if not self.known:
      raise errors.Unavailable('none')
    return self.known

  def call_when_known(self, function) -> None:
    self.functions.append(function)


class CallbacksTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self.rpc = _Rpc()
    self.ended = threading.Event()

  async def send(self, times: int = 1) -> list[str]:
    try:
      return [
        await callbacks.TRANSPORT.send(self.rpc, None, None)
        for _ in range(times)
      ]
    finally:
      self.ended.set()

  def test_continues_in_the_thread_of_the_answer(self):
    future = callbacks.start(self.send(2))
    self.rpc.calls[0].set_result('a')
    self.assertFalse(future.done())
    self.rpc.calls[1].set_result('b')
    self.assertEqual(future.result(0), ['a', 'b'])

  def test_metadata_of_the_caller_reaches_every_thread(self):
    async def named() -> None:
      with tracing.outgoing_call('lm.generate', 'm'):
        await self.send(2)

    with tracing.sending((('sax-caller', 'alice'),)):
      future = callbacks.start(named())
    answering = threading.Thread(
      target=self.rpc.calls[0].set_result, args=('a',)
    )
    answering.start()
    answering.join(_PATIENCE)
    self.rpc.calls[1].set_result('b')
    future.result(0)
    first, second = map(dict, self.rpc.metadata)
    self.assertEqual(first, second)
    self.assertEqual(first['sax-caller'], 'alice')
    self.assertRegex(first['x-request-id'], '^[0-9a-f]{16}$')
    self.assertEqual(tracing.OUTGOING.get(), ())

  def test_any_error_ends_the_future(self):
    future = callbacks.start(self.send())
    self.rpc.calls[0].set_exception(KeyError('x'))
    with self.assertRaises(KeyError):
      future.result(0)

  def test_cancelling_the_future_cancels_the_call(self):
    future = callbacks.start(self.send())
    self.assertTrue(future.cancel())
    self.assertTrue(self.rpc.calls[0].cancelled())
    # The cleanup code of the coroutine has run.
    self.assertTrue(self.ended.is_set())

  def test_sleep_can_be_cancelled(self):
    async def sleep_then_send() -> None:
      try:
        await callbacks.TRANSPORT.sleep(0.05)
        await self.send()
      finally:
        self.ended.set()

    future = callbacks.start(sleep_then_send())
    future.cancel()
    self.assertTrue(self.ended.wait(_PATIENCE))
    self.assertEmpty(self.rpc.calls)

  def test_sleep(self):
    async def sleep() -> str:
      await callbacks.TRANSPORT.sleep(0.01)
      return threading.current_thread().name

    self.assertEqual(callbacks.start(sleep()).result(_PATIENCE), 'timer')

  def test_new_replica_wakes_a_waiter_once(self):
    watcher = _Watcher()
    future = callbacks.start(callbacks.TRANSPORT.addresses(watcher, 0.05))
    with self.assertRaisesRegex(errors.Unavailable, 'none'):
      future.result(_PATIENCE)
    [late] = watcher.functions
    late()  # The time was already up.

    future = callbacks.start(callbacks.TRANSPORT.addresses(watcher, None))
    watcher.known = frozenset(['x:1'])
    watcher.functions[1]()
    self.assertEqual(future.result(0), {'x:1'})


class TimerTest(absltest.TestCase):
  def test_functions_run_when_due(self):
    delayed = callbacks.Timer()
    done = queue.Queue()
    begin = time.monotonic()
    for delay in (0.2, 0.1, 0.0, 0.1):
      delayed.call_after(
        delay, lambda d=delay: done.put((d, time.monotonic() - begin))
      )
    got = [done.get(timeout=300) for _ in range(4)]
    self.assertEqual([delay for delay, _ in got], [0.0, 0.1, 0.1, 0.2])
    for delay, seconds in got:
      self.assertGreaterEqual(seconds, delay)

  def test_failed_function_does_not_stop_the_others(self):
    delayed = callbacks.Timer()
    done = queue.Queue()
    with self.assertLogs(level='ERROR') as logs:
      delayed.call_after(0, lambda: 1 // 0)
      delayed.call_after(0.01, lambda: done.put(None))
      done.get(timeout=300)
    self.assertIn('ZeroDivisionError', logs.output[0])


if __name__ == '__main__':
  absltest.main()
