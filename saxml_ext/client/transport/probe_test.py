"""Tests that a host that may be gone is probed while it owes an answer."""

import asyncio
import threading

from absl.testing import absltest

from saxml_ext.client import sax
from saxml_ext.client import sax_aio
from saxml_ext.client.testing import fake_cell

_SECONDS = 10
_PROMPT = 'wait:'


class ProbeTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self.cell = fake_cell.FakeCell(self.create_tempdir().full_path)
    self.addCleanup(self.cell.stop)
    sax.SetRoot(self.cell.root)
    self.server = self.cell.add_server()
    self.server.gate.clear()

  def remove(self):
    self.cell.admin.remove_address(fake_cell.MODEL, self.server.address)

  def test_pending_call_is_probed(self):
    answer = []

    def ask():
      answer.extend(sax.Model(fake_cell.MODEL).LM().Generate(_PROMPT))

    thread = threading.Thread(target=ask)
    thread.start()
    self.wait_for_request()
    self.remove()
    self.assertTrue(self.server.probed.wait(_SECONDS))
    # The server is alive, and may finish its requests.
    self.server.gate.set()
    thread.join(_SECONDS)
    self.assertEqual(answer, [(_PROMPT, -1.0)])

  def test_pending_coroutine_is_probed(self):
    async def ask():
      model = sax_aio.Model(fake_cell.MODEL).LM()
      answer = asyncio.create_task(model.Generate(_PROMPT))
      await asyncio.to_thread(self.wait_for_request)
      self.remove()
      probed = await asyncio.to_thread(self.server.probed.wait, _SECONDS)
      self.server.gate.set()
      return probed, await answer

    self.assertEqual(asyncio.run(ask()), (True, [(_PROMPT, -1.0)]))

  def test_idle_connection_is_not_probed(self):
    self.server.gate.set()
    sax.Model(fake_cell.MODEL).LM().Generate(_PROMPT)
    self.remove()
    # The client asks for the changes after two, so it knows of the removal. A
    # request in the meantime could still go to the server, and owe an answer.
    self.cell.admin.wait_for_watch(2)
    self.assertFalse(self.server.probed.wait(0.2))

  def wait_for_request(self):
    for _ in range(100 * _SECONDS):
      if self.server.requests:
        return
      threading.Event().wait(0.01)
    self.fail('the request did not arrive')


if __name__ == '__main__':
  absltest.main()
