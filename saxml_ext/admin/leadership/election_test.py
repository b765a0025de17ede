"""Tests of the election: several servers in one process, over real files."""

import asyncio
import threading
import time
import unittest
from unittest import mock

from absl.testing import absltest

from saxml_ext.admin.leadership import election
from saxml_ext.admin.leadership import shared_dir
from saxml_ext.common import errors
from saxml_ext.common.testing import bucket_emulators

# A leader stays the leader if no thread waits for a processor for more than a
# second.
_FAST = election.Timing(beat=0.1, timeout=1.5, poll=0.05)
_PATIENCE = 120.0


class _Clock:
  """Replaces the module `time`. A test sets its time."""

  def __init__(self):
    self.now = 1000.0

  def monotonic(self) -> float:
    return self.now


class _Party:
  """A server in the election, with its own view of the directory."""

  def __init__(self, path: str, name: str):
    self.leading = False
    self.fails = 0
    self.directory = shared_dir.open_dir(path)
    self.led: list[bool] = []
    self.election = election.Election(
      self.directory, name, _FAST, self._lead, self._depose
    )
    self.task = asyncio.create_task(self.election.run())

  async def _lead(self, epoch: int) -> None:
    if self.fails:
      self.fails -= 1
      raise OSError(28, 'No space left on device')
    self.led.append(self.election.is_valid())
    self.directory.take_over(epoch)
    self.leading = True

  async def _depose(self) -> None:
    self.leading = False

  async def stop(self) -> None:
    self.task.cancel()
    await asyncio.gather(self.task, return_exceptions=True)


class ElectionTest(unittest.IsolatedAsyncioTestCase, absltest.TestCase):
  async def asyncSetUp(self):
    self.path = self.create_tempdir().full_path
    self.parties: list[_Party] = []

  async def asyncTearDown(self):
    for party in self.parties:
      await party.stop()

  def party(self) -> _Party:
    self.parties.append(_Party(self.path, f'p{len(self.parties)}:1'))
    return self.parties[-1]

  async def leader(self, among: list[_Party]) -> _Party:
    """Waits until exactly one server leads, and returns it."""
    until = time.monotonic() + _PATIENCE
    while time.monotonic() < until:
      leaders = [p for p in among if p.leading]
      if leaders:
        self.assertLen(leaders, 1)
        return leaders[0]
      await asyncio.sleep(0.01)
    self.fail('nobody leads')

  async def test_next_server_leads_after_the_leader_ends(self):
    left = [self.party() for _ in range(3)]
    while left:
      leader = await self.leader(left)
      self.assertTrue(leader.election.is_valid())
      left.remove(leader)
      await leader.stop()

  async def test_standby_knows_the_leader(self):
    first = self.party()
    await self.leader([first])
    second = self.party()
    await asyncio.sleep(2 * _FAST.timeout)
    self.assertFalse(second.leading)
    self.assertTrue(first.leading)
    self.assertEqual(second.election.leader, 'p0:1')

  async def test_silent_leader_is_replaced_and_steps_down(self):
    first = self.party()
    await self.leader([first])
    second = self.party()
    renew, first.directory.renew = first.directory.renew, lambda *_: None
    newest = first.directory.newest_epoch
    first.directory.newest_epoch = lambda: (
      time.sleep(2 * _FAST.timeout) or newest()
    )
    await self.leader([second])
    self.assertFalse(first.election.may_answer())
    first.directory.renew = renew
    first.directory.newest_epoch = newest
    until = time.monotonic() + _PATIENCE
    while first.leading and time.monotonic() < until:
      await asyncio.sleep(0.01)
    self.assertFalse(first.leading)
    self.assertTrue(second.leading)

  async def test_leader_keeps_leading_if_storage_is_read_only(self):
    first, second = self.party(), self.party()
    leader = await self.leader([first, second])

    def fails(*_):
      raise OSError(28, 'No space left on device')

    for party in (first, second):
      party.directory.renew = fails
      party.directory.claim = fails
    await asyncio.sleep(2 * _FAST.timeout)
    self.assertTrue(leader.leading)
    self.assertTrue(leader.election.is_valid())

  async def test_leader_is_in_doubt_if_storage_is_unreachable(self):
    leader = self.party()
    await self.leader([leader])

    def fails(*_):
      raise errors.Unavailable('no route to bucket')

    renew, newest = leader.directory.renew, leader.directory.newest_epoch
    leader.directory.renew = leader.directory.newest_epoch = fails
    await asyncio.sleep(2 * _FAST.timeout)
    self.assertFalse(leader.election.is_valid())
    self.assertTrue(leader.election.may_answer())
    leader.directory.renew, leader.directory.newest_epoch = renew, newest
    until = time.monotonic() + _PATIENCE
    while not leader.election.is_valid() and time.monotonic() < until:
      await asyncio.sleep(0.01)
    self.assertTrue(leader.election.is_valid())
    self.assertTrue(leader.leading)

  async def test_election_works_in_a_bucket(self):
    with bucket_emulators.running() as buckets:
      self.path = f'{buckets["s3"]}/cell'
      first = self.party()
      await self.leader([first])
      second = self.party()
      await asyncio.sleep(2 * _FAST.timeout)
      self.assertFalse(second.leading)
      first.directory.read('f')
      first.directory.write('f', b'1', first.election.epoch)
      # This has the same effect as a stopped process.
      first.directory.renew = lambda *_: time.sleep(3 * _FAST.timeout)
      await self.leader([second])
      second.directory.read('f')
      second.directory.write('f', b'2', second.election.epoch)
      with self.assertRaises(errors.Aborted):
        first.directory.write('f', b'3', 1)
      for party in (second, first):
        await party.stop()

  async def test_slow_claim_is_not_valid(self):
    clock = self.enterContext(mock.patch.object(election, 'time', _Clock()))
    party = self.party()
    claim, renew = party.directory.claim, party.directory.renew
    beaten = threading.Event()
    self.addCleanup(beaten.set)

    def claim_slowly(epoch, text):
      clock.now += 2 * _FAST.timeout  # A standby follows earlier.
      return claim(epoch, text)

    def renew_late(epoch, text):
      beaten.wait()
      renew(epoch, text)

    party.directory.claim = claim_slowly
    party.directory.renew = renew_late
    await self.until(lambda: party.leading)
    self.assertEqual(party.led, [False])
    beaten.set()
    await self.until(party.election.is_valid)

  async def test_slow_renewal_is_not_valid(self):
    clock = self.enterContext(mock.patch.object(election, 'time', _Clock()))
    party = self.party()
    await self.until(lambda: party.leading)
    renew, late = party.directory.renew, []

    def renew_slowly(epoch, text):
      late.append(party.election.is_valid())
      clock.now += 2 * _FAST.timeout
      renew(epoch, text)

    party.directory.renew = renew_slowly
    await self.until(lambda: len(late) > 2)
    self.assertFalse(any(late[1:]))

  async def test_slow_read_does_not_depose_the_leader(self):
    clock = self.enterContext(mock.patch.object(election, 'time', _Clock()))
    leader = shared_dir.open_dir(self.path)
    self.assertTrue(leader.claim(1, 'leader:1 1'))
    self.addCleanup(leader.close)
    party = self.party()
    look, looks = party.directory.newest, []

    def look_slowly():
      newest = look()
      looks.append(newest.text)
      if len(looks) == 3:
        clock.now += 2 * _FAST.timeout
        leader.renew(1, 'leader:1 2')
      return newest

    party.directory.newest = look_slowly
    await self.until(lambda: len(looks) > 5)
    self.assertEqual(leader.newest_epoch(), 1)
    self.assertEqual(party.led, [])

  async def test_unreleased_claim_of_its_own_causes_no_wait(self):
    # The clock stands still, so no server is ever silent for too long.
    self.enterContext(mock.patch.object(election, 'time', _Clock()))
    party = self.party()
    await self.until(lambda: party.leading)

    def fails(_):
      raise OSError(5, 'Input/output error')

    party.directory.resign = fails
    party.election.resign('for a test')
    await self.until(lambda: party.election.epoch == 2 and party.leading)

  async def until(self, condition) -> None:
    async with asyncio.timeout(_PATIENCE):
      while not condition():
        await asyncio.sleep(0.01)

  async def test_failed_takeover_is_tried_again(self):
    party = self.party()
    party.fails = 2
    await self.leader([party])

  async def test_resigned_leader_may_lead_again(self):
    party = self.party()
    await self.leader([party])
    epoch = party.election.epoch
    party.election.resign('for a test')
    until = time.monotonic() + _PATIENCE
    while party.election.epoch <= epoch and time.monotonic() < until:
      await asyncio.sleep(0.01)
    await self.leader([party])
    self.assertGreater(party.election.epoch, epoch)


if __name__ == '__main__':
  absltest.main()
