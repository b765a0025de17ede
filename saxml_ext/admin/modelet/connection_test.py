"""Tests of the limits after which a server counts as dead."""

import socket
import unittest

from absl.testing import absltest

from saxml_ext.admin.modelet import connection


class LivenessTest(absltest.TestCase):
  def test_server_that_refuses_for_half_a_second_is_dead(self):
    live = connection.Liveness()
    self.assertFalse(live.failed(0.0, 0.01, state=connection.PortState.REFUSED))
    self.assertFalse(live.failed(0.2, 0.21, state=connection.PortState.REFUSED))
    self.assertFalse(live.failed(0.4, 0.41, state=connection.PortState.REFUSED))
    self.assertTrue(live.failed(0.6, 0.61, state=connection.PortState.REFUSED))

  def test_silent_server_is_dead_after_a_longer_time(self):
    live = connection.Liveness()
    self.assertFalse(live.failed(0, 10, state=connection.PortState.TAKEN))
    self.assertFalse(live.failed(10, 20, state=connection.PortState.TAKEN))
    # The limit is 25 s, as in other admin servers.
    self.assertFalse(live.failed(20, 24.9, state=connection.PortState.TAKEN))
    self.assertTrue(live.failed(20, 25.0, state=connection.PortState.TAKEN))

  def test_machine_without_answer_is_dead_after_a_second(self):
    live = connection.Liveness()
    self.assertFalse(live.failed(0, 0.6, state=connection.PortState.NO_ANSWER))
    self.assertFalse(live.failed(0, 0.9, state=connection.PortState.NO_ANSWER))
    self.assertTrue(live.failed(0, 1.3, state=connection.PortState.NO_ANSWER))

  def test_busy_server_survives_a_lost_packet(self):
    live = connection.Liveness()
    self.assertFalse(live.failed(0, 1, state=connection.PortState.NO_ANSWER))
    self.assertFalse(live.failed(0, 20, state=connection.PortState.TAKEN))
    self.assertFalse(live.failed(0, 21, state=connection.PortState.NO_ANSWER))

  def test_single_failure_is_not_enough(self):
    live = connection.Liveness()
    self.assertFalse(live.failed(0, 3600, state=connection.PortState.TAKEN))
    live.succeeded()
    self.assertFalse(live.failing)
    self.assertFalse(
      live.failed(3600, 7200, state=connection.PortState.REFUSED)
    )
    self.assertTrue(live.failing)

  def test_success_resets_the_count(self):
    live = connection.Liveness()
    live.failed(0, 1, state=connection.PortState.REFUSED)
    live.succeeded()
    self.assertEqual(live.silent_for(5), 0)
    self.assertFalse(live.failed(5, 5.1, state=connection.PortState.REFUSED))
    self.assertEqual(live.silent_for(8), 3)


PortState = connection.PortState


class ProbeTest(unittest.IsolatedAsyncioTestCase, absltest.TestCase):
  def listening(self, backlog: int) -> tuple[socket.socket, str]:
    listener = socket.create_server(('127.0.0.1', 0), backlog=backlog)
    self.addCleanup(listener.close)
    return listener, f'127.0.0.1:{listener.getsockname()[1]}'

  async def test_port_of_a_hanging_process_is_taken(self):
    _, address = self.listening(5)
    self.assertIs(await connection.probe(address, 30), PortState.TAKEN)

  async def test_port_of_an_ended_process_is_refused(self):
    listener, address = self.listening(5)
    listener.close()
    self.assertIs(await connection.probe(address, 30), PortState.REFUSED)

  async def test_unreachable_address_has_no_answer(self):
    listener, address = self.listening(0)
    # The queue is full, so the kernel does not answer, like a machine that is
    # off.
    for _ in range(3):
      client = socket.socket()
      client.setblocking(False)
      self.addCleanup(client.close)
      client.connect_ex(listener.getsockname())
    self.assertIs(await connection.probe(address, 0.2), PortState.NO_ANSWER)


if __name__ == '__main__':
  absltest.main()
