"""Tests of the probe, against sockets of this machine."""

import socket
import unittest

from absl.testing import absltest

from saxml_ext.admin.modelet import port_check

Reach = port_check.Reach


class ReachTest(unittest.IsolatedAsyncioTestCase, absltest.TestCase):
  def listening(self, backlog: int) -> tuple[socket.socket, str]:
    listener = socket.create_server(('127.0.0.1', 0), backlog=backlog)
    self.addCleanup(listener.close)
    return listener, f'127.0.0.1:{listener.getsockname()[1]}'

  async def test_process_that_never_accepts_is_there(self):
    _, address = self.listening(5)
    self.assertIs(await port_check.probe(address, 30), Reach.TAKEN)

  async def test_process_that_ended(self):
    listener, address = self.listening(5)
    listener.close()
    self.assertIs(await port_check.probe(address, 30), Reach.REFUSED)

  async def test_no_answer(self):
    listener, address = self.listening(0)
    # A full queue: the kernel answers no more, like a machine that is off.
    for _ in range(3):
      client = socket.socket()
      client.setblocking(False)
      self.addCleanup(client.close)
      client.connect_ex(listener.getsockname())
    self.assertIs(await port_check.probe(address, 0.2), Reach.NO_ANSWER)


if __name__ == '__main__':
  absltest.main()
