"""Tests of a leader and its followers as threads of one process."""

from collections.abc import Callable
import threading
import time
import types
from unittest import mock

from absl.testing import absltest
import numpy as np

from saxml_ext.common import errors
from saxml_ext.engine import request as request_lib
from saxml_ext.groups import group_engine
from saxml_ext.groups import leader as leader_lib
from saxml_ext.groups.testing import local_group
from saxml_ext.groups.testing import noting_runner
from saxml_ext.protobuf import modelet_pb2

_TIMEOUT = 300
_REQUEST = modelet_pb2.LoadRequest(
  model_path='a.B', checkpoint_path='/ckpt', overrides={'K': '1'}
)


def _request(*tokens: int, **fields) -> request_lib.Request:
  return request_lib.Request(np.asarray(tokens, np.int32), **fields)


class LeaderTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self.made: dict[int, list[noting_runner.NotingPrepared]] = {
      i: [] for i in range(3)
    }
    self.parts = {i: {'params': 'p', 'checkpoint': 'c'} for i in range(3)}
    self.errors: dict[int, Exception] = {}
    self.fail_start = False

  def _prepare(self, process: int) -> group_engine.PrepareFn:
    def prepare(request):
      self.assertEqual(request, _REQUEST)
      if process in self.errors:
        raise self.errors[process]
      made = noting_runner.NotingPrepared(
        self.parts[process], self.fail_start and process == 1
      )
      self.made[process].append(made)
      return made

    return prepare

  def _group(
    self, limits: group_engine.Limits = local_group.LIMITS
  ) -> local_group.LocalGroup:
    return self._closed_at_end(
      local_group.LocalGroup([self._prepare(i) for i in range(3)], limits)
    )

  def _closed_at_end(
    self, group: local_group.LocalGroup
  ) -> local_group.LocalGroup:
    self.addCleanup(group.close)
    return group

  def _calls(self, process: int, model: int = 0):
    return self.made[process][model].runner.calls

  def _finish(self, group: local_group.LocalGroup) -> None:
    group.leader.finish()
    for thread in group.threads:
      thread.join(_TIMEOUT)
      self.assertFalse(thread.is_alive())
    self.assertTrue(group.ends.empty())

  def test_every_process_makes_the_same_calls(self):
    group = self._group()
    self.assertEqual(
      list(map(str, group.hosts)),
      [f'host {"abc"[i]} (process {i})' for i in range(3)],
    )
    runner = group.leader.load(_REQUEST).runner
    self.assertEqual(runner.num_slots, 4)
    with self.assertRaisesRegex(ValueError, 'no tokens'):
      runner.check(_request())
    full = {
      'max_new_tokens': 7,
      'min_new_tokens': 0,
      'stop_ids': (5, 6),
      'temperature': 0.1,
      'top_k': 0,
      'top_p': 0.95,
      'seed': 2**32 - 1,
    }
    runner.prefill_and_insert(
      {
        3: _request(1, 2, 3, **full),
        0: _request(4),
        1: _request(8, stop_ids=()),
      }
    )
    runner.release(1)
    self.assertEqual(runner.step(5), {3: [3, 2, 1], 0: [4]})
    self.assertEqual(runner.step(), {})
    score = runner.score(np.asarray([1, 2]), np.asarray([3]))
    self.assertEqual(score, -12.0)
    self._finish(group)
    calls = self._calls(0)
    kind, slot, noted = calls[0]
    self.assertEqual((kind, slot), ('admit', 3))
    self.assertEqual(noted, {**noted, 'tokens': [1, 2, 3], **full})
    self.assertIsNone(calls[1][2]['stop_ids'])
    self.assertIsNone(calls[1][2]['top_p'])
    self.assertBetween(calls[1][2]['seed'], 0, 2**32 - 1)
    self.assertEqual(calls[2][2]['stop_ids'], ())
    self.assertEqual(
      calls[3:],
      [('release', 1), ('step', 5), ('step', None), ('score', [1, 2], [3])],
    )
    self.assertEqual(self._calls(1), calls)
    self.assertEqual(self._calls(2), calls)

  def test_models_take_turns_in_one_order_everywhere(self):
    group = self._group()
    order: dict[int, list[int]] = {}
    runners = [group.leader.load(_REQUEST).runner for _ in range(2)]
    for process, made in self.made.items():
      order[process] = []
      for model, engine in enumerate(made):
        engine.runner.calls = _Shared(order[process], model)

    def drive(runner):
      for _ in range(100):
        runner.step()

    threads = [threading.Thread(target=drive, args=(r,)) for r in runners]
    for thread in threads:
      thread.start()
    for thread in threads:
      thread.join(_TIMEOUT)
    self._finish(group)
    self.assertLen(order[0], 200)
    self.assertEqual(order[1], order[0])
    self.assertEqual(order[2], order[0])

  def test_call_of_one_model_waits_for_that_of_another(self):
    group = self._group()
    runners = [group.leader.load(_REQUEST).runner for _ in range(2)]
    first, second = (made.runner for made in self.made[0])
    first.gate.clear()
    threads = [self._in_thread(runners[0].step)]
    _wait_until(lambda: first.calls)
    threads.append(self._in_thread(runners[1].step))
    _wait_until(lambda: second.calls or group.leader._turn._waiting)
    self.assertEmpty(second.calls)
    # No follower makes the second call before the leader does.
    for process in (1, 2):
      _wait_until(lambda process=process: self._calls(process))
      self.assertEmpty(self._calls(process, model=1))
    first.gate.set()
    for thread in threads:
      thread.join(_TIMEOUT)
    self._finish(group)
    for process in range(3):
      self.assertEqual(self._calls(process, model=1), [('step', None)])

  def test_unloaded_model_is_forgotten_by_all(self):
    group = self._group()
    first = group.leader.load(_REQUEST).runner
    group.leader.unload(first.model)
    for follower in group.followers:
      self.assertEmpty(follower._runners)
    second = group.leader.load(_REQUEST).runner
    second.step()
    self._finish(group)
    self.assertEqual(self._calls(2, model=1), [('step', None)])

  def test_host_that_cannot_prepare(self):
    group = self._group()
    self.errors[1] = errors.NotFound('no such directory')
    with self.assertRaisesRegex(
      errors.NotFound, r'^host b \(process 1\): no such directory$'
    ):
      group.leader.load(_REQUEST)
    self.errors[0] = RuntimeError('odd')
    with self.assertRaisesRegex(
      errors.SaxError,
      r'host a \(process 0\): Loading error: RuntimeError: odd; host b',
    ):
      group.leader.load(_REQUEST)
    self.errors = {i: errors.InvalidArgument('bad') for i in range(3)}
    with self.assertRaisesRegex(errors.InvalidArgument, '^bad$'):
      group.leader.load(_REQUEST)
    # The group survives the failed load.
    self.errors = {}
    self.assertEqual(group.leader.load(_REQUEST).runner.step(), {})
    for follower in group.followers:
      self.assertEmpty(follower._prepared)
    self._finish(group)

  def test_host_with_something_else(self):
    group = self._group()
    self.parts[2] = {'params': 'p', 'checkpoint': 'd'}
    with self.assertRaisesRegex(
      errors.FailedPrecondition,
      r'^checkpoint differs: host a \(process 0\), host b \(process 1\) have c,'
      r' host c \(process 2\) has d. All hosts of a group must have'
      ' the same values.$',
    ):
      group.leader.load(_REQUEST)
    self.parts[2] = {'checkpoint': 'c'}
    with self.assertRaisesRegex(errors.SaxError, 'params differs:.* nothing'):
      group.leader.load(_REQUEST)
    self._finish(group)

  def test_host_that_cannot_start_ends_the_group(self):
    self.fail_start = True
    group = self._group(group_engine.Limits(silence=4.0))
    self._in_thread(group.leader.load, _REQUEST)
    self.assertEqual(
      group.next_end(),
      (0, 'host b (process 1): start failed: MemoryError: no room'),
    )
    group.leader.tell_end('why')
    reasons = dict(group.next_end() for _ in range(2))
    self.assertEqual(reasons, {1: 'why', 2: 'why'})

  def test_follower_that_fails_ends_the_group(self):
    group = self._group(group_engine.Limits(silence=4.0))
    runner = group.leader.load(_REQUEST).runner
    self.made[2][0].runner.fail = RuntimeError('bad device')
    self.assertEqual(runner.step(), {})
    self.assertEqual(
      group.next_end(),
      (0, 'host c (process 2): step failed: RuntimeError: bad device'),
    )

  def test_leader_that_fails_answers_nothing(self):
    group = self._group(group_engine.Limits(silence=4.0))
    runner = group.leader.load(_REQUEST).runner
    self.made[0][0].runner.fail = RuntimeError('bad device')
    thread = self._in_thread(runner.step)
    self.assertEqual(
      group.next_end(),
      (0, 'host a (process 0): a step failed: RuntimeError: bad device'),
    )
    self.assertTrue(thread.is_alive())

  def test_call_that_takes_too_long(self):
    group = self._group(group_engine.Limits(step=1.0))
    runner = group.leader.load(_REQUEST).runner
    for process in (0, 2):
      self.made[process][0].runner.gate.clear()
    self._in_thread(runner.step)
    process, reason = group.next_end()
    self.assertEqual(process, 0)
    self.assertEqual(
      reason, 'host c (process 2) has not done a step within 1 s'
    )

  def test_host_that_takes_too_long_to_load(self):
    waiting = threading.Event()
    self.addCleanup(waiting.set)

    def wait(_):
      waiting.wait()

    group = self._closed_at_end(
      local_group.LocalGroup(
        [self._prepare(0), wait], group_engine.Limits(load=1.0)
      )
    )
    self._in_thread(group.leader.load, _REQUEST)
    self.assertEqual(
      group.next_end(),
      (0, 'host b (process 1) has not prepared the model within 1 s'),
    )

  def test_limit_of_a_load_includes_what_the_leader_took(self):
    now = 0.0
    waiting = threading.Event()
    self.addCleanup(waiting.set)

    def prepare(request):
      nonlocal now
      now = 5000.0
      return self._prepare(0)(request)

    clock = types.SimpleNamespace(monotonic=lambda: now, sleep=time.sleep)
    self.enter_context(mock.patch.object(leader_lib, 'time', clock))
    group = self._closed_at_end(
      local_group.LocalGroup(
        [prepare, lambda _: waiting.wait()], group_engine.Limits(load=4000.0)
      )
    )
    self._in_thread(group.leader.load, _REQUEST)
    self.assertEqual(
      group.next_end(),
      (0, 'host b (process 1) has not prepared the model within 4000 s'),
    )

  def test_loss_of_a_host_is_the_reason_for_a_call_that_fails(self):
    """Checks that a lost host is reported, although a call failed before it."""
    timers = self.enter_context(
      mock.patch.object(
        leader_lib.threading, 'Timer', side_effect=threading.Timer
      )
    )
    group = self._group()
    runner = group.leader.load(_REQUEST).runner
    self.made[0][0].runner.fail = RuntimeError('connection reset')
    self._in_thread(runner.step)
    _wait_until(lambda: timers.called)
    # The loss is detected after `silence`, so the failure is reported later.
    (delay, _, _), _ = timers.call_args
    self.assertGreater(delay, local_group.LIMITS.silence)
    group.leader.left(group.leader._members.all()[0])
    process, reason = group.next_end()
    self.assertEqual(process, 0)
    self.assertStartsWith(reason, 'host b (process 1) is lost')

  def test_unknown_processes_are_refused(self):
    group = self._group()
    for number, epoch, why in (
      (1, 'f' * 32, 'belongs to another start of the group'),
      (1, group.leader.epoch, r'process 1 has already joined, on host b'),
      (3, group.leader.epoch, r'is not one of the followers, processes 1 to 2'),
    ):
      stranger = group.follower(
        number,
        noting_runner.prepare,
        group.announcement._replace(epoch=epoch),
      )
      stranger.run()
      process, reason = group.next_end()
      self.assertEqual(process, number)
      self.assertRegex(
        reason, r'host a \(process 0\) refused this process: .*' + why
      )
    self.assertEqual(group.leader.load(_REQUEST).runner.step(), {})
    self._finish(group)

  def test_stopping_follower_is_reported(self):
    group = self._group()
    self.assertTrue(group.followers[1].ask_to_stop())
    host = group.stopping.get(timeout=_TIMEOUT)
    self.assertEqual(host.process_id, 2)
    with self.subTest('before it joins'):
      late = group.follower(1, noting_runner.prepare)
      self.assertFalse(late.ask_to_stop())
      self.assertTrue(late.run())
    self._finish(group)

  def test_followers_that_do_not_come(self):
    with self.assertRaisesRegex(
      errors.Unavailable, r'processes 1, 2 of the group did not join within 1 s'
    ):
      leader = local_group.leader_lib.Leader(
        'a',
        3,
        group_engine.Limits(join=1.0),
        noting_runner.prepare,
        lambda _: None,
        lambda _: None,
      )
      leader.listen('127.0.0.1', 0)
      leader.wait_for_followers()

  def _in_thread(self, function, *args) -> threading.Thread:
    thread = threading.Thread(target=function, args=args, daemon=True)
    thread.start()
    return thread


def _wait_until(condition: Callable[[], object]) -> None:
  deadline = time.monotonic() + _TIMEOUT
  while not condition():
    if time.monotonic() > deadline:
      raise TimeoutError
    time.sleep(0.001)


class _Shared(list):
  """A list that also records the caller's model in a list shared by engines."""

  def __init__(self, order: list[int], model: int):
    super().__init__()
    self._order = order
    self._model = model

  def append(self, unused_call):
    self._order.append(self._model)


if __name__ == '__main__':
  absltest.main()
