"""Tests the access checks of every route."""

from absl.testing import absltest

from saxml_ext.http.testing import gateway_case

_KEYS = {'k-alice': 'alice'}
_MESSAGES = [{'role': 'user', 'content': 'x'}]
# Maps each path to the body to post, or to None for a GET request.
_GUARDED = {
  '/v1/completions': {'prompt': 'x'},
  '/v1/chat/completions': {'messages': _MESSAGES},
  '/v1/embeddings': {'input': 'x'},
  '/v1/models': None,
  '/v1/models/m': None,
  '/tokenize': {'prompt': 'x'},
  '/detokenize': {'tokens': [1]},
  '/predict': {'instances': [{'prompt': 'x'}]},
}
_OPEN = ('/health', '/health/live', '/version', '/metrics')
_WRONG = (
  '',
  'k-alice',
  'Bearer',
  'Bearer ',
  'Bearer k-bob',
  'Bearer k-alice k-alice',
  'Bearer k-alic',
  'Bearer K-ALICE',
  'Basic k-alice',
  'Token k-alice',
  'Bearerk-alice',
)


class KeysTest(gateway_case.GatewayCase):
  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.gateway = cls.start_gateway(name_of=_KEYS.get)

  def test_requests_without_a_valid_key_are_refused(self):
    for path, body in _GUARDED.items():
      for wrong in _WRONG:
        headers = {'Authorization': wrong} if wrong else {}
        status, got, _ = self.fetch(path, body, **headers)
        self.assertEqual(status, 401, (path, wrong))
        self.assertEqual(got['error']['code'], 'invalid_api_key')
      status, _, _ = self.fetch(path + '?api_key=k-alice', body)
      self.assertEqual(status, 401, path)
    self.assertEqual(self.server.requests, [])

  def test_requests_with_a_key_are_accepted(self):
    for path, body in _GUARDED.items():
      for right in ('Bearer k-alice', 'bearer k-alice', 'Bearer  k-alice '):
        status, _, _ = self.fetch(path, body, Authorization=right)
        self.assertEqual(status, 200, (path, right))

  def test_public_routes_need_no_key(self):
    for path in _OPEN:
      self.assertEqual(self.fetch(path)[0], 200, path)

  def test_every_request_counts_as_in_flight(self):
    gateway = self.start_gateway(max_in_flight=1)
    stream = self.client(gateway).completions.create(
      model='m', prompt='endless:0.01', stream=True
    )
    next(stream)
    for path, body in _GUARDED.items():
      self.assertEqual(self.fetch(path, body, gateway)[0], 429, path)
    for path in _OPEN:
      self.assertEqual(self.fetch(path, None, gateway)[0], 200, path)
    stream.close()


if __name__ == '__main__':
  absltest.main()
