"""Tests a gateway with hostile or slow clients."""

import contextlib
import json
import socket
import threading
from unittest import mock
import urllib.parse
import urllib.request

from absl.testing import absltest

from saxml_ext.http.protocol import checkpoint_templates
from saxml_ext.http.protocol import fields
from saxml_ext.http.protocol import templates
from saxml_ext.http.testing import gateway_case
from saxml_ext.http.web import bodies

_PATH = '/v1/completions'
_BODY = json.dumps({'model': 'm', 'prompt': 'x'}).encode()
_HEAD = (
  f'POST {_PATH} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n'
  f'Content-Type: application/json\r\nContent-Length: {len(_BODY)}\r\n\r\n'
).encode()


class SlowBodiesTest(gateway_case.GatewayCase):
  @contextlib.contextmanager
  def sending(self, gateway, data, address='127.0.0.1'):
    """Yields a connection from a loopback address, after sending the data."""
    port = urllib.parse.urlparse(gateway.address).port
    with socket.create_connection(
      ('127.0.0.1', port), 60, (address, 0)
    ) as connection:
      connection.sendall(data)
      yield connection

  def answer(self, connection):
    parts = []
    while part := connection.recv(65536):
      parts.append(part)
    return b''.join(parts).decode()

  def wait_for_bodies(self, count):
    """Waits until this many bodies are being received or are waiting."""
    while sum(self.readers[-1]._users.values()) < count:
      self.cell.admin.pause()

  def wait_for_places(self, gateway):
    """Waits until no request is in flight."""
    while True:
      with urllib.request.urlopen(f'{gateway.address}/metrics') as answer:
        if b'\nsax_gateway_requests_in_flight 0.0\n' in answer.read():
          return
      self.cell.admin.pause()

  def start(self, **options):
    self.readers = []
    original = bodies.Reader

    def reader(*args):
      self.readers.append(original(*args))
      return self.readers[-1]

    with mock.patch.object(bodies, 'Reader', reader):
      return self.start_gateway(**options)

  def test_missing_body_takes_no_slot(self):
    gateway = self.start(max_in_flight=1)
    with self.sending(gateway, _HEAD + b'{') as slow:
      self.wait_for_bodies(1)
      status, got, _ = self.fetch(_PATH, _BODY, gateway)
      self.assertEqual((status, got['choices'][0]['text']), (200, 'X'))
      # The gateway frees the slot of a request just after its answer.
      self.wait_for_places(gateway)
      slow.sendall(_BODY[1:])
      self.assertIn('200 OK', self.answer(slow))

  def test_slow_client_delays_only_itself(self):
    gateway = self.start(most_bodies=1)
    with (
      self.sending(gateway, _HEAD + b'{') as slow,
      self.sending(gateway, _HEAD + _BODY) as second,
    ):
      self.wait_for_bodies(2)
      with self.sending(gateway, _HEAD + _BODY, '127.0.0.2') as other:
        self.assertIn('200 OK', self.answer(other))
      self.assertEqual(sum(self.readers[-1]._users.values()), 2)
      slow.close()
      self.assertIn('200 OK', self.answer(second))
    self.assertEqual(self.readers[-1]._turns, {})

  def test_each_key_is_a_client(self):
    gateway = self.start(most_bodies=1, name_of={'a': 'a', 'b': 'b'}.get)
    head = _HEAD.replace(b'Host', b'Authorization: Bearer a\r\nHost')
    with self.sending(gateway, head + b'{'):
      self.wait_for_bodies(1)
      status, _, _ = self.fetch(_PATH, _BODY, gateway, Authorization='Bearer b')
      self.assertEqual(status, 200)

  def test_time_is_bounded(self):
    gateway = self.start(most_bodies=1)
    with (
      mock.patch.object(bodies, '_BODY_SECS', 0.3),
      self.sending(gateway, _HEAD + b'{') as slow,
      self.sending(gateway, _HEAD + b'{') as waiting,
    ):
      # The waiting request has been waiting for the same time.
      answers = [self.answer(slow), self.answer(waiting)]
    self.assertIn(' 408 ', answers[0])
    self.assertIn('1 bytes of the body arrived', answers[0])
    self.assertRegex(answers[1], ' 4(08|29) ')

  def test_bytes_in_flight_are_bounded(self):
    size = 100_000
    gateway = self.start(max_bytes_in_flight=2 * size, max_body_bytes=size)
    body = b'{"prompt": "' + b'x' * (size - 14) + b'"}'
    head = _HEAD.replace(f': {len(_BODY)}\r'.encode(), f': {size}\r'.encode())
    chunked = head.replace(
      f'Content-Length: {size}'.encode(), b'Transfer-Encoding: chunked'
    )
    with (
      mock.patch.object(bodies, '_BODY_SECS', 0.5),
      self.sending(gateway, head + body[:-1]) as slow,
    ):
      self.wait_for_bytes(size)
      # One client has half. A small body needs no room.
      for begin in (head, chunked):
        with self.sending(gateway, begin) as second:
          self.assertIn('--max_bytes_in_flight', self.answer(second))
      self.assertEqual(self.fetch(_PATH, _BODY, gateway)[0], 200)
      with self.sending(gateway, head + body, '127.0.0.2') as other:
        self.assertIn('the prompt has 99986 tokens', self.answer(other))
      slow.close()
      self.wait_for_bytes(0)

  def wait_for_bytes(self, size):
    while self.readers[-1]._bytes.total() != size:
      self.cell.admin.pause()

  def test_large_bodies_are_parsed_in_threads(self):
    names = []
    original = fields.parse_object

    def parse(body):
      names.append(threading.current_thread().name)
      return original(body)

    with mock.patch.object(fields, 'parse_object', parse):
      for size in (10, 100_000):
        self.fetch(_PATH, {'model': 'm', 'prompt': 'x' * size})
    self.assertNotIn('request', names[0])
    self.assertStartsWith(names[1], 'request')


class TemplatesTest(gateway_case.GatewayCase):
  def test_hostile_template_delays_no_other_request(self):
    loop = '{% for i in R %}{% for j in R %}{% endfor %}{% endfor %}'
    profiles = {
      name: templates.Profile(
        checkpoint_templates.CheckpointTemplate({'default': text}, {}, name)
      )
      for name, text in (
        ('/sax/test/m', loop.replace('R', 'range(99999)')),
        ('/sax/test/other', '{{ tools | tojson(indent=4) }}'),
      )
    }
    gateway = self.start_gateway(profiles=profiles)
    messages = [{'role': 'user', 'content': 'x'}]
    answers = []

    ended = threading.Event()

    def attack():
      body = {'model': 'm', 'messages': messages}
      while not ended.is_set():
        answers.append(self.fetch('/v1/chat/completions', body, gateway))

    attacks = [threading.Thread(target=attack) for _ in range(3)]
    for thread in attacks:
      self.addCleanup(thread.join)
      self.addCleanup(ended.set)
      thread.start()
    while not answers:  # Then others are running.
      self.cell.admin.pause()
    for _ in range(100):
      before = len(answers)
      for _ in range(3):
        self.assertEqual(self.fetch('/health/live', gateway=gateway)[0], 200)
        # This template has turns of its own; its model does not exist.
        body = {'model': 'other', 'messages': messages}
        got = self.fetch('/v1/chat/completions', body, gateway)
        self.assertEqual(got[0], 404, got)
      if len(answers) == before:
        break  # These requests did not wait for a hostile one.
    else:
      self.fail('Requests always wait until a hostile one ends.')
    ended.set()
    for thread in attacks:
      thread.join()
    # On a busy machine, they also wait too long for each other.
    texts = {400: 'takes more than 1 s', 503: 'busy with large requests'}
    for status, got, _ in answers:
      self.assertIn(texts[status], got['error']['message'])

  def test_deep_tools_are_refused(self):
    template = checkpoint_templates.CheckpointTemplate(
      {'default': '{{ tools | tojson(indent=4) }}'}, {}, 't.jinja'
    )
    gateway = self.start_gateway(profile=templates.Profile(template))
    tool = b'{"a":' * 250 + b'1' + b'}' * 250
    body = b'{"model": "m", "messages": [{"role": "user", "content": "x"}],'
    body += b'"tools": [' + b','.join([tool] * 150) + b']}'
    for path in ('/v1/chat/completions', '/tokenize'):
      status, got, _ = self.fetch(path, body, gateway)
      self.assertEqual((status, got['error']['param']), (400, 'tools'))


class OtherSitesTest(gateway_case.GatewayCase):
  def status(self, gateway, path='/v1/models', **headers):
    status, got, _ = self.fetch(path, None, gateway, **headers)
    if status == 403:
      self.assertEqual(got['error']['type'], 'permission_error')
    return status

  def test_rebound_host(self):
    gateway = self.start_gateway(local=True, allowed_hosts=['good.example'])
    for host, expected in (
      ('localhost', 200),
      ('LocalHost:8000', 200),
      ('localhost.:80', 200),
      ('127.0.0.1:1', 200),
      ('127.1.2.3', 200),
      ('[::1]:8000', 200),
      ('good.example:8000', 200),
      ('evil.example', 403),
      ('evil.example:8000', 403),
      ('localhost.evil.example', 403),
      ('localhost@evil.example', 403),
      ('10.0.0.1', 403),
      ('[', 403),
      ('', 403),
      ('evil@localhost', 403),
      ('localhost:notaport', 403),
      ('localhost:65536', 403),
      ('localhost/x', 403),
      ('localhost?x', 403),
      ('localhost#x', 403),
      ('localhost:80:80', 403),
      ('[::1]x', 403),
    ):
      for path in ('/v1/models', '/metrics', '/nowhere'):
        status = self.status(gateway, path, Host=host)
        if path == '/nowhere' and expected == 200:
          self.assertEqual(status, 404)
        else:
          self.assertEqual(status, expected, host)

  def test_only_allowed_hosts_are_accepted(self):
    gateway = self.start_gateway(allowed_hosts=['good.example'])
    self.assertEqual(self.status(gateway, Host='good.example'), 200)
    self.assertEqual(self.status(gateway, Host='localhost'), 403)
    # A gateway that is not limited to loopback accepts any host name by
    # default.
    self.assertEqual(self.status(self.gateway, Host='any.example'), 200)

  def test_origins(self):
    gateway = self.start_gateway(allowed_origins=['https://a.example'])
    everybody = self.start_gateway(allowed_origins=['*'])
    own = gateway.address
    for origin, expected in (
      (own, 200),
      ('https://a.example', 200),
      ('https://b.example', 403),
      ('https://a.example.b', 403),
      (own + '0', 403),
      ('null', 403),
      ('http://[', 403),
    ):
      self.assertEqual(self.status(gateway, Origin=origin), expected, origin)
      self.assertEqual(self.status(everybody, Origin=origin), 200)
      status, _, _ = self.fetch(_PATH, _BODY, gateway, Origin=origin)
      self.assertEqual(status, expected, origin)


class TextsTest(gateway_case.GatewayCase):
  def test_lone_surrogate_in_a_name_is_escaped(self):
    status, got, _ = self.fetch(_PATH, b'{"\\ud800": 1, "prompt": "x"}')
    self.assertEqual((status, got['error']['param']), (400, '\ud800'))


if __name__ == '__main__':
  absltest.main()
