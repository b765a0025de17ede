"""Tests `serve` with small models, as a user runs it; kills processes."""

import http.server
import json
import os
import re
import signal
import threading
from urllib import request

from absl.testing import absltest
import psutil

from serve import programs
from tests.serve import serving


class _LoadingServer(http.server.BaseHTTPRequestHandler):
  """Answers the first request as a gateway does while a model is loading."""

  num_requests = 0

  def do_GET(self):
    """Answers the question whether a gateway listens."""
    self.send_response(200)
    self.end_headers()

  def do_POST(self):
    """Answers with an error or with a stream."""
    type(self).num_requests += 1
    if self.num_requests == 1:
      self.send_response(503)
      self.send_header('Retry-After', '0')
      body = {'error': {'message': 'compiled 1 of 2 programs'}}
      text = json.dumps(body)
    else:
      self.send_response(200)
      chunk = {'choices': [{'delta': {'content': 'Hi'}}]}
      text = f'data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n'
    self.end_headers()
    self.wfile.write(text.encode())


class ServeTest(serving.ServeCase):
  def _ask(self, port: str, *words: str, **flags):
    return self.run_program('serve/ask', *words, port=port, **flags)

  def _child(self, program: str) -> psutil.Process:
    for child in psutil.Process(self.serve.pid).children(recursive=True):
      if f'{program}.py' in ' '.join(child.cmdline()):
        return child
    raise AssertionError(f'{program} does not run: {self.text}')

  def test_serving_survives_a_killed_process(self):
    port = self.start('gptj-small')
    done = self._ask(port, 'The court', 'said', max_tokens=8, temperature=0)
    self.assertEqual(done.returncode, 0, done.stderr)
    self.assertNotEmpty(done.stdout.strip())
    self.assertIn('lm.generate /sax/local/gptj-small', self.text)
    self.assertIn('curl -N http://127.0.0.1:', self.text)
    self._check_status_page()
    # The server that replaces the killed one gives the same answer.
    self._child(programs.MODEL_SERVER).kill()
    serving.wait_until(lambda: 'Starting it again' in self.text, 'a restart')
    again = self._ask(port, 'The court', 'said', max_tokens=8, temperature=0)
    self.assertEqual((again.returncode, again.stdout), (0, done.stdout))
    # New connections wait for the gateway that replaces a killed one.
    self._child(programs.GATEWAY).kill()
    with request.urlopen(
      f'http://127.0.0.1:{port}/health/live', None, 600
    ) as r:
      self.assertEqual(r.status, 200)
    refused = self._ask(port, 'Hello', model='other')
    self.assertEqual(refused.returncode, 1)
    self.assertIn('other', refused.stderr)
    self._taken(port)
    processes = psutil.Process(self.serve.pid).children(recursive=True)
    self.serve.send_signal(signal.SIGINT)
    self.assertEqual(self.serve.wait(), 0, self.text)
    self.assertEmpty([p for p in processes if p.is_running()])
    self.assertIn('serve: stopped', self.text)

  def test_serves_a_llama_from_its_hugging_face_directory(self):
    directory = os.path.join(
      programs.ROOT, 'harness', 'bundled', 'llama', 'model'
    )
    port = self.start(directory, 'BATCH_SIZE=1', max_model_len=64)
    self.assertIn('saxml_ext.params.llama.AnyLlama', self.text)
    self.assertIn('model: Matrices are bfloat16', self.text)
    done = self._ask(port, 'The court', 'said', max_tokens=8, temperature=0)
    self.assertEqual(done.returncode, 0, done.stderr)
    self.assertNotEmpty(done.stdout.strip())

  def _check_status_page(self) -> None:
    url = re.search('status of the cell: (.*)', self.text)[1]
    with request.urlopen(url) as page:
      self.assertIn('/sax/local/gptj-small', page.read().decode())

  def _taken(self, port: str) -> None:
    """Checks the errors of a second `serve` with the same port or directory."""
    done = self.run_program(programs.SERVE, 'gptj-small', port=port)
    self.assertEqual(done.returncode, 1)
    self.assertRegex(done.stderr, 'Address already in use, by process [0-9]+')
    root = os.path.join(self.cache, 'serve', port)
    done = self.run_program(programs.SERVE, 'gptj-small', port=0, sax_root=root)
    self.assertEqual(done.returncode, 1)
    self.assertIn(f'is used by process {self.serve.pid}', done.stderr)

  def _refused(self, message: str, *words: str, **flags) -> None:
    done = self.run_program(programs.SERVE, *words, port=0, **flags)
    self.assertEqual(done.returncode, 1, done.stderr)
    self.assertIn(message, done.stderr)
    self.assertFalse(os.path.exists(os.path.join(self.cache, 'models')))

  def test_flags_without_effect_are_refused(self):
    for message, flags in (
      ('--api_keys_file, or --insecure', {'host': '0.0.0.0'}),
      ('--insecure has no effect', {'insecure': True}),
      ('--api_keys_file=/nowhere cannot be used', {'api_key_file': '/nowhere'}),
      (
        'no effect. It acts only without --params',
        {'params': 'a.B', 'quantize': 'int8'},
      ),
      (
        'no effect. It acts only without --params',
        {'params': 'a.B', 'max_model_len': 64},
      ),
    ):
      self._refused(message, **flags)

  def test_wrong_words_start_no_conversion(self):
    directory = os.path.join(programs.ROOT, 'harness/bundled/llama/model')
    for message, *words in (
      ('A is set twice', 'A=1', 'A=2'),
      ('neither a directory', directory, '/nowhere'),
      ('Did you mean BATCH_SIZE', directory, 'BATCH_SZE=4'),
      ('Name the model without a flag', '--model', 'a/b'),
      ('--max_model_len=99999 is above', directory, '--max-model-len=99999'),
      ('--chat_template=/no/such', directory, '--chat_template=/no/such'),
      ('no serving params are named', directory, '--params=a.B'),
    ):
      self._refused(message, *words)

  def test_ask_waits_while_the_model_is_loading(self):
    server = http.server.HTTPServer(('127.0.0.1', 0), _LoadingServer)
    self.addCleanup(server.server_close)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    self.addCleanup(server.shutdown)
    done = self._ask(str(server.server_port), 'Hello')
    self.assertEqual((done.returncode, done.stdout), (0, 'Hi\n'), done.stderr)
    self.assertIn('ask: compiled 1 of 2 programs\n', done.stderr)

  def test_ask_without_a_question(self):
    done = self.run_program('serve/ask')
    self.assertEqual(done.returncode, 1)
    self.assertIn('The question is empty', done.stderr)


if __name__ == '__main__':
  absltest.main()
