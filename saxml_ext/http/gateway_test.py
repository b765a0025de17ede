"""Tests of the gateway's program."""

import os
import re
import signal
import threading

from absl.testing import absltest
import openai

from saxml_ext.client.testing import fake_cell
from saxml_ext.common.testing import modules
from saxml_ext.http.testing import fake_completion

_PROGRAM = 'saxml_ext.http.gateway'


class GatewayTest(absltest.TestCase):
  def test_serves_and_drains(self):
    cell = fake_cell.FakeCell(self.create_tempdir().full_path)
    self.addCleanup(cell.stop)
    server = fake_completion.FakeCompletion()
    self.addCleanup(server.stop)
    cell.admin.add_address(fake_cell.MODEL, server.address)
    process = modules.start(
      self,
      _PROGRAM,
      '--chat_template=dialogue,m=chatml',
      SAX_ROOT=cell.root,
      SAX_CELL=fake_cell.CELL,
      # As Vertex AI starts it.
      AIP_HTTP_PORT='0',
      AIP_PREDICT_ROUTE='/v1/endpoints/1:predict',
    )
    line = process.stdout.readline()
    port = re.search(r':(\d+)$', line)
    self.assertIsNotNone(port, line)
    client = openai.OpenAI(
      base_url=f'http://127.0.0.1:{port.group(1)}/v1', api_key='none'
    )
    self.addCleanup(client.close)
    got = client.chat.completions.create(
      model='m', messages=[{'role': 'user', 'content': 'hi'}]
    )
    self.assertIn('<|IM_START|>USER', got.choices[0].message.content)
    answers = []

    def ask():
      for chunk in client.completions.create(
        model='m', prompt='slow:0.02', stream=True
      ):
        answers.append(chunk.choices[0].text)

    thread = threading.Thread(target=ask)
    thread.start()
    self.assertTrue(server.running.wait(60))
    process.send_signal(signal.SIGTERM)
    thread.join(60)
    self.assertEqual(''.join(answers), 'x' * fake_completion.SLOW_TOKENS)
    self.assertEqual(process.wait(60), 0)

  def test_errors_at_the_start(self):
    for flags, expected in (
      ([], '--sax_cell'),
      (['--sax_cell=/sax/test'], '--sax_root'),
      (['--sax_cell=test', '--sax_root=/tmp'], 'test'),
      (
        ['--sax_cell=/sax/t', '--sax_root=/tmp', '--chat_template=jinja'],
        'none of alpaca',
      ),
    ):
      variables = dict.fromkeys(('SAX_ROOT', 'SAX_CELL'), '')
      done = modules.run(_PROGRAM, *flags, **(os.environ | variables))
      self.assertNotEqual(done.returncode, 0)
      self.assertIn(expected, done.stderr)
      self.assertNotIn('Traceback', done.stderr)


if __name__ == '__main__':
  absltest.main()
