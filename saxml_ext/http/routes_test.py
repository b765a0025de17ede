"""Tests the gateway's routes, over a test cell."""

import http.client
import re
import urllib.parse

from absl.testing import absltest
import openai

from saxml_ext.client import sax
from saxml_ext.client.testing import fake_cell
from saxml_ext.http.testing import fake_completion
from saxml_ext.http.testing import gateway_case
from saxml_ext.protobuf import common_pb2

_MODEL = fake_cell.MODEL


class RoutesTest(gateway_case.GatewayCase):
  def test_models(self):
    client = self.client()
    [model] = client.models.list().data
    self.assertEqual((model.id, model.owned_by), (_MODEL, 'sax'))
    self.assertEqual(model.root, '/c/1')
    most = fake_completion.MAX_PROMPT + fake_completion.MAX_NEW_TOKENS
    self.assertEqual(model.max_model_len, most)
    facts = model.family, model.parameters, model.format, model.is_chat
    self.assertEqual(facts, ('gptj', 6_050_882_784, 'int8', False))
    for name in ('m', _MODEL):
      self.assertEqual(client.models.retrieve(name), model)
    status, body, _ = self.fetch('/v1/models/other')
    self.assertEqual(status, 404)
    self.assertEqual(body['error']['code'], 'model_not_found')

  def test_published_and_unpublished(self):
    gateway = self.start_gateway()
    self.fetch('/v1/models', gateway=gateway)
    self.cell.publish('/sax/test/second')
    self.addCleanup(self.cell.admin.models.pop, '/sax/test/second', None)
    for _ in range(100):  # It calls the cell at most once per second.
      _, body, _ = self.fetch('/v1/models', gateway=gateway)
      if len(body['data']) == 2:
        break
      self.cell.admin.pause()
    ids = [model['id'] for model in body['data']]
    self.assertEqual(ids, [_MODEL, '/sax/test/second'])
    # A model without a replica is listed too, without its length limit.
    self.assertIsNone(body['data'][1]['max_model_len'])
    self.assertNotIn('family', body['data'][1])
    status, body, _ = self.fetch(
      '/v1/completions', {'prompt': 'x'}, gateway=gateway
    )
    self.assertEqual(status, 400)
    self.assertEqual(body['error']['param'], 'model')

  def test_public_names(self):
    gateway = self.start_gateway(aliases={'org/gpt-j': 'm', 'news': _MODEL})
    client = self.client(gateway)
    ids = [model.id for model in client.models.list().data]
    self.assertEqual(ids, ['org/gpt-j', 'news'])
    for name in ('org/gpt-j', 'm', _MODEL):
      got = client.completions.create(model=name, prompt='x')
      self.assertEqual(got.model, name)
      self.assertEqual(self.server.requests[-1].model_key, _MODEL)
    self.assertEqual(client.models.retrieve('news').id, 'news')
    self.assertEqual(client.models.retrieve('m').id, _MODEL)
    _, got, _ = self.fetch('/v1/completions', {'prompt': 'x'}, gateway)
    self.assertEqual(got['model'], 'org/gpt-j')

  def test_only_model_needs_no_name(self):
    status, body, _ = self.fetch('/v1/completions', {'prompt': 'x'})
    self.assertEqual((status, body['model']), (200, _MODEL))

  def test_tokens(self):
    for body in (
      {'model': 'm', 'prompt': 'hi', 'return_token_strs': True},
      {
        'messages': [{'role': 'user', 'content': 'hi'}],
        'return_token_strs': True,
      },
    ):
      status, got, _ = self.fetch('/tokenize', body)
      self.assertEqual(status, 200)
      self.assertEqual(got['tokens'], [104, 105])
      self.assertEqual((got['count'], got['token_strs']), (2, ['h', 'i']))
    status, got, _ = self.fetch('/detokenize', {'tokens': [104, 105]})
    self.assertEqual((status, got), (200, {'prompt': 'hi'}))
    status, got, _ = self.fetch('/detokenize', {'tokens': ['a']})
    self.assertEqual((status, got['error']['param']), (400, 'tokens'))

  def test_embeddings(self):
    create = self.client().embeddings.create
    for options in ({}, {'encoding_format': 'float'}):
      got = create(model='m', input=['a', 'three'], **options)
      self.assertEqual([d.embedding for d in got.data], [[0.5, 1], [0.5, 5]])
      self.assertEqual([d.index for d in got.data], [0, 1])
      self.assertEqual(got.usage.prompt_tokens, 6)
    for wrong in ('none', [], [1, 2]):
      with self.assertRaises(openai.BadRequestError):
        create(model='m', input=wrong)
    with self.assertRaises(openai.BadRequestError) as e:
      create(model='m', input='a', dimensions=3)
    self.assertEqual(e.exception.param, 'dimensions')

  def test_predict(self):
    body = {
      'instances': [
        {'prompt': 'hello'},
        {'prompt': 'ab', 'max_tokens': 1, 'n': 2},
        {'messages': [{'role': 'user', 'content': 'chat'}]},
      ],
      'parameters': {'max_tokens': 3, 'model': 'm'},
    }
    status, got, _ = self.fetch('/predict', body)
    self.assertEqual(status, 200)
    one, two, three = got['predictions']
    self.assertEqual(one['choices'][0]['text'], 'HEL')
    self.assertEqual(one['usage']['completion_tokens'], 3)
    self.assertEqual([c['text'] for c in two['choices']], ['A', 'A'])
    self.assertEqual(three['choices'][0]['message']['content'], 'CHA')
    for wrong in (
      {},
      {'instances': []},
      {'instances': [3]},
      {'instances': [{'prompt': 'x', 'stream': True}]},
      {'instances': [{'prompt': ['a', 'b']}]},
      {'instances': [{'prompt': 'x'}], 'parameters': []},
    ):
      self.assertEqual(self.fetch('/predict', wrong)[0], 400)

  def test_health_and_version(self):
    for path in ('/health', '/health/live', '/version'):
      self.assertEqual(self.fetch(path)[0], 200)
    gateway = self.start_gateway()
    root = self.cell.root
    sax.SetRoot(self.create_tempdir().full_path)
    self.addCleanup(sax.SetRoot, root)
    status, body, _ = self.fetch('/health', gateway=gateway)
    self.assertEqual(status, 503)
    self.assertIn('is not available', body['error']['message'])
    self.assertEqual(self.fetch('/health/live', gateway=gateway)[0], 200)

  def test_metrics(self):
    gateway = self.start_gateway()
    self.fetch('/v1/completions', {'model': 'm', 'prompt': 'hi'}, gateway)
    self.client(gateway).completions.create(
      model='m', prompt='hello', stream=True
    ).response.read()
    self.fetch('/v1/completions', {'model': 'x', 'prompt': 'hi'}, gateway)
    _, text, headers = self.fetch('/metrics', gateway=gateway)
    self.assertStartsWith(headers['content-type'], 'text/plain')
    model = f'model_name="{_MODEL}"'
    route = 'route="/v1/completions"'
    for line in (
      f'sax_gateway_requests_total{{code="200",{model},{route}}} 2.0',
      f'sax_gateway_requests_total{{code="404",model_name="",{route}}} 1.0',
      'sax_gateway_requests_in_flight 0.0',
      f'vllm:prompt_tokens_total{{{model}}} 7.0',
      f'vllm:generation_tokens_total{{{model}}} 7.0',
      f'vllm:request_success_total{{finished_reason="stop",{model}}} 2.0',
      f'vllm:time_to_first_token_seconds_count{{{model}}} 1.0',
      f'vllm:e2e_request_latency_seconds_count{{{model}}} 2.0',
    ):
      self.assertIn(line, text)

  def test_request_ids(self):
    body = {'model': 'm', 'prompt': 'x'}
    path = '/v1/completions'
    _, got, headers = self.fetch(path, body, **{'X-Request-Id': 'mine-1'})
    self.assertEqual(headers['x-request-id'], 'mine-1')
    self.assertEqual(got['id'], 'cmpl-mine-1')
    self.assertEqual(self.server.metadata[-1]['x-request-id'], 'mine-1')
    _, _, headers = self.fetch(path, body, **{'X-Request-Id': 'no ä id'})
    self.assertTrue(re.fullmatch('[0-9a-f]{16}', headers['x-request-id']))
    _, _, headers = self.fetch('/nowhere')
    self.assertIn('x-request-id', headers)

  def test_caller_cannot_name_itself(self):
    self.fetch('/v1/completions', {'prompt': 'x'}, **{'Sax-Caller': 'root'})
    self.assertNotIn('sax-caller', self.server.metadata[-1])


class NamesTest(gateway_case.GatewayCase):
  def test_errors_and_metrics_have_the_name_of_the_client(self):
    gateway = self.start_gateway(aliases={'org/gpt-j': 'm', 'news': 'm'})
    for name, shown in (('news', 'news'), (None, 'org/gpt-j')):
      for stream in (False, True):
        body = {'prompt': 'name:', 'stream': stream}
        if name:
          body['model'] = name
        status, got, _ = self.fetch('/v1/completions', body, gateway)
        self.assertEqual(status, 400)
        self.assertEqual(
          got['error']['message'], f'the model {shown} has no such prompt'
        )
    _, text, _ = self.fetch(
      '/v1/completions',
      {'model': 'news', 'prompt': 'break:1', 'stream': True},
      gateway,
    )
    self.assertIn('the replica of news is gone', text)
    _, text, _ = self.fetch('/metrics', gateway=gateway)
    self.assertIn('model_name="org/gpt-j"', text)
    self.assertNotIn('/sax/', text)

  def test_unknown_model_lists_the_known_names(self):
    gateway = self.start_gateway(aliases={'org/gpt-j': 'm'})
    for name in ('gpt-4o', 'x' * 10_000):
      status, got, _ = self.fetch(
        '/v1/completions', {'model': name, 'prompt': 'x'}, gateway
      )
      self.assertEqual(status, 404)
      self.assertIn('Available: org/gpt-j. See', got['error']['message'])
      self.assertLess(len(got['error']['message']), 200)


class LoadingTest(gateway_case.GatewayCase):
  def setUp(self):
    super().setUp()
    self.addCleanup(self.set_replicas)

  def set_replicas(self, *replicas):
    """Sets the states and the reasons that the admin server reports."""
    published = self.cell.admin.models[_MODEL]
    del published.replicas[:]
    for status, reason in replicas:
      published.replicas.add(
        address=self.server.address,
        status=common_pb2.ModelStatus.Value(status),
        reason=reason,
      )

  def test_requests_during_the_load_are_rejected_at_once(self):
    body = {'model': 'news', 'prompt': 'x'}
    for reason, secs in (
      ('3 of 11 programs, 20 s left', '20'),
      ('', '5'),
      ('0 s left', '1'),
    ):
      self.set_replicas(('LOADING', reason))
      gateway = self.start_gateway(aliases={'news': 'm'})
      for path, extra in (
        ('/v1/completions', {}),
        ('/v1/completions', {'stream': True}),
        ('/tokenize', {}),
      ):
        status, got, headers = self.fetch(path, body | extra, gateway)
        self.assertEqual(status, 503)
        self.assertEqual(headers['retry-after'], secs)
        message = got['error']['message']
        self.assertStartsWith(message, 'the model news is loading')
        self.assertIn(reason, message)
        self.assertIn(f'Try again in {secs} s', message)
      status, got, _ = self.fetch('/health', gateway=gateway)
      shown = f'loading: {reason}' if reason else 'loading'
      self.assertEqual((status, got['models']), (200, {'news': shown}))
      _, got, _ = self.fetch('/v1/models', gateway=gateway)
      [model] = got['data']
      self.assertEqual(
        (model['status'], model['status_reason']), ('loading', reason or None)
      )
    self.assertEqual(self.server.requests, [])
    # Clients that try again succeed as soon as the model is loaded.
    self.set_replicas(('LOADED', ''), ('LOADING', '9 s left'))
    got = self.client(gateway, max_retries=9).completions.create(**body)
    self.assertEqual(got.choices[0].text, 'X')
    _, got, _ = self.fetch('/health', gateway=gateway)
    self.assertEqual(got, {'status': 'ok'})
    _, got, _ = self.fetch('/v1/models', gateway=gateway)
    self.assertEqual(got['data'][0]['status'], 'loaded')

  def test_failed_loads_are_explained(self):
    self.set_replicas(('FAILED', 'out of memory'))
    gateway = self.start_gateway()
    status, got, headers = self.fetch(
      '/v1/completions', {'model': 'm', 'prompt': 'x'}, gateway
    )
    self.assertEqual(status, 503)
    self.assertEqual(
      got['error']['message'], 'the model m could not be loaded: out of memory'
    )
    self.assertEqual(headers['x-should-retry'], 'false')

  def test_alias_of_an_unpublished_model_can_be_retried(self):
    gateway = self.start_gateway(aliases={'soon': 'second'})
    status, got, headers = self.fetch(
      '/v1/completions', {'model': 'soon', 'prompt': 'x'}, gateway
    )
    self.assertEqual((status, headers['retry-after']), (503, '5'), got)


class WrongRequestsTest(gateway_case.GatewayCase):
  def test_paths_and_methods(self):
    for method, path, expected in (
      ('GET', '/v1', 404),
      ('POST', '/v1/images', 404),
      ('GET', '/v1/completions', 405),
      ('POST', '/v1/models', 405),
      ('DELETE', '/v1/chat/completions', 405),
    ):
      body = b'{}' if method == 'POST' else None
      host = urllib.parse.urlparse(self.gateway.address).netloc
      connection = http.client.HTTPConnection(host, timeout=60)
      self.addCleanup(connection.close)
      headers = {'Content-Type': 'application/json'} if body else {}
      connection.request(method, path, body, headers)
      response = connection.getresponse()
      self.assertEqual(response.status, expected, path)
      self.assertIn(b'"error"', response.read())
      allow = {'/v1/models': 'GET, HEAD'}.get(path, 'POST')
      self.assertEqual(
        response.headers['allow'], allow if expected == 405 else None
      )

  def test_bodies(self):
    deep = b'[' * 100_000
    for body in (
      b'',
      b'{',
      b'[]',
      b'"x"',
      b'{"prompt": NaN}',
      b'{"prompt": "\xff"}',
      b'{"prompt": "\\ud800"}',
      b'{"prompt": ' + deep,
      b'{"prompt": ' + b'9' * 10_000 + b'}',
      b'{"prompt": 5}',
      b'{"prompt": []}',
      b'{"prompt": [[]]}',
      b'{"prompt": [1, "a"]}',
      b'{"prompt": [-1]}',
      b'{"prompt": [4294967296]}',
      b'{"model": 3, "prompt": "x"}',
      b'{"prompt": "x", "stream": "yes"}',
      b'{"prompt": "x", "temperature": 1e999}',
    ):
      status, got, _ = self.fetch('/v1/completions', body)
      self.assertEqual(status, 400, body[:40])
      self.assertEqual(got['error']['type'], 'invalid_request_error')
    for messages in (
      None,
      [],
      'hi',
      ['hi'],
      [{'content': 'hi'}],
      [{'role': 'tool', 'content': 'hi'}],
      [{'role': 'user'}],
      [{'role': 'user', 'content': [{'type': 'image_url'}]}],
      [{'role': 'user', 'content': [{'type': 'text'}]}],
      [{'role': 'user', 'content': 'x', 'tool_calls': [{}]}],
      [{'role': 'user', 'content': '\ud800'}],
    ):
      body = {'messages': messages}
      status, _, _ = self.fetch('/v1/chat/completions', body)
      self.assertEqual(status, 400, messages)
    self.assertEqual(self.server.requests, [])

  def test_pages_of_other_sites(self):
    path, body = '/v1/completions', b'{"prompt": "x"}'
    status, _, _ = self.fetch(path, body, **{'Content-Type': 'text/plain'})
    self.assertEqual(status, 415)
    origin = {'Origin': 'https://a.example'}
    _, _, headers = self.fetch(path, body, **origin)
    self.assertNotIn('access-control-allow-origin', headers)
    gateway = self.start_gateway(allowed_origins=['https://a.example'])
    _, _, headers = self.fetch(path, body, gateway, **origin)
    self.assertEqual(
      headers['access-control-allow-origin'], 'https://a.example'
    )

  def test_timeouts(self):
    for value in ('0', '-1', 'nan', 'soon'):
      status, _, _ = self.fetch(
        '/v1/completions', {'prompt': 'x'}, **{'X-Request-Timeout': value}
      )
      self.assertEqual(status, 400)


if __name__ == '__main__':
  absltest.main()
