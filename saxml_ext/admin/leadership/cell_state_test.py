"""Tests of the durable table of models."""

import asyncio
import threading
import unittest
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized

from saxml_ext.admin.leadership import cell_state
from saxml_ext.admin.leadership import cell_state as state_lib
from saxml_ext.admin.modelet import held
from saxml_ext.common import errors
from saxml_ext.common.testing import golden
from saxml_ext.protobuf import admin_pb2


def _model(name: str, **fields) -> admin_pb2.Model:
  return admin_pb2.Model(model_id=f'/sax/test/{name}', **fields)


def _publish(name: str) -> state_lib.Edit:
  def edit(table):
    model = _model(name)
    if model.model_id in table:
      raise errors.AlreadyExists(name)
    return state_lib.Change(None, model)

  return edit


def _unpublish(name: str) -> state_lib.Edit:
  return lambda table: state_lib.Change(table[f'/sax/test/{name}'], None)


class FakeDisk:
  """Keeps saved states in memory. It can be slow or full."""

  def __init__(self):
    self.saved: list[list[str]] = []
    self.full = False
    self.open = threading.Event()
    self.open.set()

  def save(self, state: admin_pb2.State) -> None:
    self.open.wait()
    if self.full:
      raise OSError(28, 'No space left on device')
    self.saved.append([m.model_id.rsplit('/')[-1] for m in state.models])


class ModelStoreTest(unittest.IsolatedAsyncioTestCase, absltest.TestCase):
  def setUp(self):
    super().setUp()
    self.disk = FakeDisk()
    self.changes: list[state_lib.Change] = []
    self.store = state_lib.ModelStore(
      admin_pb2.State(models=[_model('old')]),
      self.disk.save,
      self.changes.append,
    )

  async def asyncTearDown(self):
    self.disk.open.set()
    await self.store.close()

  def names(self) -> list[str]:
    return [e.model.model_id.rsplit('/')[-1] for e in self.store.entries()]

  async def test_starts_from_the_saved_state(self):
    self.assertEqual(self.names(), ['old'])
    self.assertEqual(self.disk.saved, [])

  async def test_change_is_on_disk_before_it_takes_effect(self):
    self.disk.open.clear()
    task = asyncio.create_task(self.store.apply(_publish('a')))
    await asyncio.sleep(0.05)
    self.assertFalse(task.done())
    self.assertEqual(self.names(), ['old'])
    self.disk.open.set()
    await task
    self.assertEqual(self.names(), ['old', 'a'])
    self.assertEqual(self.disk.saved, [['old', 'a']])

  async def test_burst_is_written_together(self):
    self.disk.open.clear()
    tasks = [
      asyncio.create_task(self.store.apply(_publish(f'm{i}')))
      for i in range(100)
    ]
    await asyncio.sleep(0.05)
    self.disk.open.set()
    await asyncio.gather(*tasks)
    self.assertLen(self.names(), 101)
    self.assertLessEqual(len(self.disk.saved), 2)

  async def test_refused_edit_changes_nothing(self):
    results = await asyncio.gather(
      self.store.apply(_publish('a')),
      self.store.apply(_publish('a')),
      self.store.apply(_publish('b')),
      return_exceptions=True,
    )
    self.assertIsInstance(results[1], errors.AlreadyExists)
    self.assertEqual([results[0], results[2]], [None, None])
    self.assertEqual(self.names(), ['old', 'a', 'b'])

  async def test_total_size_of_models_is_limited(self):
    limit = state_lib.MAX_STATE_BYTES
    size = 250_000

    def change(name, before, length) -> state_lib.Edit:
      model = _model(name)
      model.overrides['A'] = length * 'x'
      old = (lambda table: table[model.model_id]) if before else lambda _: None
      return lambda table: state_lib.Change(old(table), model)

    results = await asyncio.gather(
      *(self.store.apply(change(f'm{i}', False, size)) for i in range(120)),
      return_exceptions=True,
    )
    refused = [e for e in results if e is not None]
    self.assertLen(refused, 120 - limit // size)
    for error in refused:
      self.assertIsInstance(error, errors.FailedPrecondition)
      self.assertIn(f'more than the limit of {limit}', error.message)
    # What shrinks is accepted, and makes room.
    await self.store.apply(change('m0', True, 0))
    await self.store.apply(change('new', False, size))
    with self.assertRaises(errors.FailedPrecondition):
      await self.store.apply(change('m0', True, size))

  async def test_full_disk_fails_only_the_call(self):
    self.disk.full = True
    with self.assertRaisesRegex(errors.FailedPrecondition, 'No space left'):
      await self.store.apply(_publish('a'))
    self.assertEqual(self.names(), ['old'])
    self.assertEqual(self.changes, [])
    self.disk.full = False
    await self.store.apply(_publish('a'))
    self.assertEqual(self.names(), ['old', 'a'])

  async def test_cancelled_caller_leaves_a_whole_change(self):
    self.disk.open.clear()
    task = asyncio.create_task(self.store.apply(_publish('a')))
    await asyncio.sleep(0.05)
    task.cancel()
    self.disk.open.set()
    await self.store.apply(_publish('b'))
    self.assertEqual(self.names(), ['old', 'a', 'b'])

  async def test_unpublish_closes_the_address_log(self):
    entry = self.store.get('/sax/test/old')
    waiter = asyncio.create_task(entry.changed.wait())
    await asyncio.sleep(0)
    await self.store.apply(_unpublish('old'))
    await asyncio.wait_for(waiter, 1)
    self.assertTrue(entry.removed)
    self.assertIsNone(self.store.get('/sax/test/old'))
    self.assertEqual(self.disk.saved, [[]])

  async def test_republish_starts_a_new_entry(self):
    entry = self.store.get('/sax/test/old')
    await asyncio.gather(
      self.store.apply(_unpublish('old')), self.store.apply(_publish('old'))
    )
    self.assertIsNot(self.store.get('/sax/test/old'), entry)
    self.assertEqual([c.after is None for c in self.changes], [True, False])


class SignalTest(unittest.IsolatedAsyncioTestCase):
  async def test_notify_wakes_all_current_waiters(self):
    signal = cell_state.Signal()
    signal.notify_all()
    waiting = [asyncio.create_task(signal.wait()) for _ in range(3)]
    await asyncio.sleep(0)
    self.assertEqual(signal.num_waiters, 3)
    signal.notify_all()
    late = asyncio.create_task(signal.wait())
    await asyncio.gather(*waiting)
    self.assertFalse(late.done())
    self.assertEqual(signal.num_waiters, 1)
    signal.notify_all()
    await late

  async def test_cancelled_waiter_leaves(self):
    signal = cell_state.Signal()
    waiting = asyncio.create_task(signal.wait())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    self.assertEqual(signal.num_waiters, 0)


class FailuresTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self.now = 1000.0
    self.enterContext(
      mock.patch.object(held.time, 'monotonic', lambda: self.now)
    )
    self.failures = held.Failures()

  def test_nothing_failed(self):
    self.assertEqual(self.failures.wait(), 0.0)
    self.assertEqual(self.failures.count('a:1'), 0)

  def test_pause_doubles_from_a_second_to_a_minute(self):
    pauses = []
    for _ in range(9):
      self.failures.add('a:1', 'why')
      pauses.append(self.failures.wait())
    self.assertEqual(pauses, [1, 2, 4, 8, 16, 32, 60, 60, 60])

  def test_failures_of_all_servers_count(self):
    for address in ('a:1', 'b:1', 'c:1'):
      self.failures.add(address, 'why')
    self.assertEqual(self.failures.wait(), 4.0)

  def test_pause_ends(self):
    self.failures.add('a:1', 'why')
    self.now += 0.75
    self.assertEqual(self.failures.wait(), 0.25)
    self.now += 10.0
    self.assertEqual(self.failures.wait(), 0.0)

  def test_items_have_count_and_reason_by_server(self):
    self.failures.add('b:1', 'first')
    self.failures.add('a:1', '')
    self.failures.add('b:1', 'second')
    self.failures.explain('a:1', 'told later')
    self.assertEqual(
      self.failures.items(),
      [
        ('a:1', held.Failure('told later', 1)),
        ('b:1', held.Failure('second', 2)),
      ],
    )
    self.assertEqual(self.failures.count('b:1'), 2)
    self.failures.forget('b:1')
    self.assertEqual(self.failures.count('b:1'), 0)
    self.assertEqual(self.failures.wait(), 1.0)
    self.failures.clear()
    self.assertEqual(self.failures.wait(), 0.0)


def _as_json(delta: admin_pb2.WatchResult) -> dict[str, object]:
  return {
    'next_seqno': delta.next_seqno,
    'has_fullset': delta.has_fullset,
    'values': list(delta.values),
    'changelog': [
      {c.WhichOneof('kind') or 'none': c.addition or c.deletion}
      for c in delta.changelog
    ],
  }


class RecordedSequencesTest(absltest.TestCase):
  def test_recorded_answers_are_the_same(self):
    sequences = golden.load('validation.json')['watchable']
    self.assertNotEmpty(sequences)
    for sequence in sequences:
      log = cell_state.AddressLog()
      answers = iter(sequence['watch_results'])
      for op in sequence['ops']:
        if op['op'] == 'add':
          log.add(op['val'])
        elif op['op'] == 'del':
          log.remove(op['val'])
        elif op['op'] == 'close':
          log.close()
        else:
          answer = next(answers)
          delta = log.read(op['seqno'])
          if 'error' in answer:  # The recorded call timed out.
            self.assertIsNone(delta, op)
          else:
            self.assertEqual(_as_json(delta), answer['result'], op)
      self.assertIsNone(next(answers, None))


class AddressLogTest(parameterized.TestCase):
  def test_new_log_is_empty(self):
    self.assertIsNone(cell_state.AddressLog().read(0))

  def test_addresses_are_the_sum_of_all_changes(self):
    log = cell_state.AddressLog()
    for address in 'abcab':
      log.add(address)
    log.remove('b')
    self.assertEqual(log.addresses, {'a', 'c'})

  @parameterized.parameters(1, 2, 5)
  def test_readers_of_any_pace_see_the_same_addresses(self, pace: int):
    log = cell_state.AddressLog()
    seen, seqno = set(), 0
    for i in range(200):
      (log.add if i % 3 else log.remove)(f's{i % 17}')
      if i % pace:
        continue
      delta = log.read(seqno)
      if delta.has_fullset:
        seen = set(delta.values)
      for change in delta.changelog:
        if change.addition:
          seen.add(change.addition)
        else:
          seen.discard(change.deletion)
      seqno = delta.next_seqno
      self.assertEqual(seen, log.addresses)

  def test_log_stays_small(self):
    log = cell_state.AddressLog()
    for i in range(10_000):
      log.add(f's{i % 4}')
      log.remove(f's{i % 4}')
    delta = log.read(0)
    self.assertTrue(delta.has_fullset)
    self.assertLessEqual(len(delta.changelog), 9)

  def test_closed_log_resets_its_readers(self):
    log = cell_state.AddressLog()
    log.add('a')
    log.close()
    for seqno in (0, 1, 7):
      self.assertEqual(log.read(seqno), admin_pb2.WatchResult(has_fullset=True))


if __name__ == '__main__':
  absltest.main()
