"""Tests of the limits after which a server counts as dead."""

import socket
import unittest

from absl.testing import absltest

from saxml_ext.admin.modelet import connection


class LivenessTest(absltest.TestCase):
  def test_refused_for_half_a_second(self):
    live = connection.Liveness()
    self.assertFalse(live.failed(0.0, 0.01, reach=connection.Reach.REFUSED))
    self.assertFalse(live.failed(0.2, 0.21, reach=connection.Reach.REFUSED))
    self.assertFalse(live.failed(0.4, 0.41, reach=connection.Reach.REFUSED))
    self.assertTrue(live.failed(0.6, 0.61, reach=connection.Reach.REFUSED))

  def test_silent_servers_get_longer(self):
    live = connection.Liveness()
    self.assertFalse(live.failed(0, 10, reach=connection.Reach.TAKEN))
    self.assertFalse(live.failed(10, 20, reach=connection.Reach.TAKEN))
    # The limit is 25 s, as in other admin servers.
    self.assertFalse(live.failed(20, 24.9, reach=connection.Reach.TAKEN))
    self.assertTrue(live.failed(20, 25.0, reach=connection.Reach.TAKEN))

  def test_machine_that_does_not_answer(self):
    live = connection.Liveness()
    self.assertFalse(live.failed(0, 0.6, reach=connection.Reach.NO_ANSWER))
    self.assertFalse(live.failed(0, 0.9, reach=connection.Reach.NO_ANSWER))
    self.assertTrue(live.failed(0, 1.3, reach=connection.Reach.NO_ANSWER))

  def test_busy_server_does_not_count_as_gone_after_a_lost_packet(self):
    live = connection.Liveness()
    self.assertFalse(live.failed(0, 1, reach=connection.Reach.NO_ANSWER))
    self.assertFalse(live.failed(0, 20, reach=connection.Reach.TAKEN))
    self.assertFalse(live.failed(0, 21, reach=connection.Reach.NO_ANSWER))

  def test_one_failure_is_never_enough(self):
    live = connection.Liveness()
    self.assertFalse(live.failed(0, 3600, reach=connection.Reach.TAKEN))
    live.succeeded()
    self.assertFalse(live.failing)
    self.assertFalse(live.failed(3600, 7200, reach=connection.Reach.REFUSED))
    self.assertTrue(live.failing)

  def test_success_starts_the_count_anew(self):
    live = connection.Liveness()
    live.failed(0, 1, reach=connection.Reach.REFUSED)
    live.succeeded()
    self.assertEqual(live.silent_for(5), 0)
    self.assertFalse(live.failed(5, 5.1, reach=connection.Reach.REFUSED))
    self.assertEqual(live.silent_for(8), 3)


Reach = connection.Reach


class ReachTest(unittest.IsolatedAsyncioTestCase, absltest.TestCase):
  def listening(self, backlog: int) -> tuple[socket.socket, str]:
    listener = socket.create_server(('127.0.0.1', 0), backlog=backlog)
    self.addCleanup(listener.close)
    return listener, f'127.0.0.1:{listener.getsockname()[1]}'

  async def test_process_that_never_accepts_is_there(self):
    _, address = self.listening(5)
    self.assertIs(await connection.probe(address, 30), Reach.TAKEN)

  async def test_process_that_ended(self):
    listener, address = self.listening(5)
    listener.close()
    self.assertIs(await connection.probe(address, 30), Reach.REFUSED)

  async def test_no_answer(self):
    listener, address = self.listening(0)
    # The queue is full, so the kernel does not answer, like a machine that is
    # off.
    for _ in range(3):
      client = socket.socket()
      client.setblocking(False)
      self.addCleanup(client.close)
      client.connect_ex(listener.getsockname())
    self.assertIs(await connection.probe(address, 0.2), Reach.NO_ANSWER)


if __name__ == '__main__':
  absltest.main()
