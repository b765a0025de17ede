"""Tests the gateway's program."""

import contextlib
import os
import re
import signal
import socket
import ssl
import threading

from absl.testing import absltest
from absl.testing import flagsaver
import openai

from saxml_ext.client.testing import fake_cell
from saxml_ext.common.security import access
from saxml_ext.common.security import api_keys
from saxml_ext.common.security import tls
from saxml_ext.common.security.testing import cell_certs
from saxml_ext.common.testing import modules
from saxml_ext.http import gateway
from saxml_ext.http.testing import fake_completion

_PROGRAM = 'saxml_ext.http.gateway'


class GatewayTest(absltest.TestCase):
  def test_serves_and_drains(self):
    cell, server = self.start_cell()
    process = modules.start(
      self,
      _PROGRAM,
      '--chat_template=dialogue,m=chatml',
      '--max_connections_per_client=3',
      SAX_ROOT=cell.root,
      SAX_CELL=fake_cell.CELL,
      # Vertex AI starts the gateway with these variables.
      AIP_HTTP_PORT='0',
      AIP_PREDICT_ROUTE='/v1/endpoints/1:predict',
    )
    port = self.port(process)
    with contextlib.ExitStack() as held:
      for _ in range(4):
        connection = socket.create_connection(('127.0.0.1', port), 60)
        held.enter_context(connection)
      self.assertStartsWith(connection.recv(99).decode(), 'HTTP/1.1 429')
    client = openai.OpenAI(
      base_url=f'http://127.0.0.1:{port}/v1', api_key='none'
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

  def test_keys_and_encryption(self):
    directory = self.create_tempdir().full_path
    certs = cell_certs.CellCerts(directory)
    tls.configure(certs.server())
    self.addCleanup(tls.configure, None)
    access.trust(['gateway.test'])
    self.addCleanup(access.trust, [])
    cell, server = self.start_cell()
    key, line = api_keys.make('alice@example.org')
    path = os.path.join(directory, 'keys')
    with open(path, 'w', encoding='ascii') as f:
      f.write(f'{line}\n')
    own = certs.make('gateway.test', 'gateway.test', '127.0.0.1')
    process = modules.start(
      self,
      _PROGRAM,
      '--port=0',
      f'--api_keys_file={path}',
      f'--tls_cert_file={own.cert_file}',
      f'--tls_key_file={own.key_file}',
      f'--tls_ca_file={own.ca_file}',
      f'--tls_server_name={own.server_name}',
      SAX_ROOT=cell.root,
      SAX_CELL=fake_cell.CELL,
    )
    port = self.port(process)
    context = ssl.create_default_context(cafile=certs.ca_file)
    for api_key, allowed in ((key, True), (key[:-1] + '-', False)):
      with openai.OpenAI(
        base_url=f'https://127.0.0.1:{port}/v1',
        api_key=api_key,
        http_client=openai.DefaultHttpxClient(verify=context),
      ) as client:
        if allowed:
          client.completions.create(model='m', prompt='x')
        else:
          with self.assertRaises(openai.AuthenticationError):
            client.completions.create(model='m', prompt='x')
    # The model server trusts the gateway and gets the owner of the API key.
    self.assertEqual(server.callers, ['alice@example.org'])
    process.terminate()
    self.assertNotIn(key, process.communicate()[1])

  def start_cell(self):
    cell = fake_cell.FakeCell(self.create_tempdir().full_path)
    self.addCleanup(cell.stop)
    server = fake_completion.FakeCompletion()
    self.addCleanup(server.stop)
    cell.admin.add_address(fake_cell.MODEL, server.address)
    return cell, server

  def port(self, process):
    line = process.stdout.readline()
    match = re.search(r'Gateway .* https?://.*:(\d+)$', line)
    self.assertIsNotNone(match, line)
    return match.group(1)

  def test_errors_at_the_start(self):
    os.environ.pop('SAX_ROOT', None)
    os.environ.pop('SAX_CELL', None)
    for given, expected in (
      ({}, '--sax_cell'),
      ({'sax_cell': '/sax/test'}, '--sax_root'),
      ({'sax_cell': 'test', 'sax_root': '/tmp'}, 'test'),
      ({'chat_template': ['jinja']}, 'neither a file nor one of alpaca'),
      ({'generation_config': ['m=/nowhere']}, '--generation_config=m=/nowhere'),
      ({'served_model_name': ['gpt-j']}, '--default_model'),
      ({'api_keys_file': '/nowhere'}, '/nowhere'),
      ({'status_page': 'localhost:80'}, '--status_page=localhost:80 is not'),
    ):
      if expected not in ('--sax_cell', '--sax_root', 'test'):
        given |= {'sax_cell': '/sax/t', 'sax_root': '/tmp'}
      with (
        flagsaver.flagsaver(**given),
        self.assertRaisesRegex(SystemExit, f'gateway: .*{expected}'),
      ):
        gateway.main(['gateway'])


if __name__ == '__main__':
  absltest.main()
