"""Replays requests that MLCommons' client of Endpoints sent to a gateway.

docs/endpoints.md shows the runs. The bundled Llama must answer each request
with the tokens of transformers, in the form that the client reads.
"""

import collections
from collections.abc import Iterator
import http.client
import json
import pathlib
import re
import tempfile
from typing import Any

from absl.testing import absltest
import tokenizers

from harness.benchmarks import gptj
from harness.benchmarks import llama
from saxml_ext.evaluation import dataset
from saxml_ext.http.testing import gateway_fixture
from tests.gateway import real_cell

_RECORDED = pathlib.Path(__file__).parent / 'endpoints_requests.json'
_LENGTHS = {
  'INPUT_SEQ_LEN': '384',
  'BUCKET_KEYS': '[384]',
  'MAX_DECODE_STEPS': '128',
  'BATCH_SIZE': '2',
}
# The client searches each event for this pattern.
_DATA = re.compile(rb'data:\s*(\{[^\n]+\})')
# The members that the client requires of a whole answer.
_WHOLE = {
  '/v1/chat/completions': {'id', 'choices'},
  '/v1/completions': {'id', 'created', 'model', 'choices', 'usage'},
}


class EndpointsTest(absltest.TestCase):
  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    directory = tempfile.mkdtemp(dir=absltest.get_default_test_tmpdir())
    model = real_cell.Model(
      'saxml_ext.params.llama.AnyLlama',
      llama.BUNDLE.pax + '/checkpoint_00000000',
      _LENGTHS,
    )
    cls.addClassCleanup(real_cell.RealCell(directory, model).stop)
    gateway = gateway_fixture.GatewayFixture(
      real_cell.CELL,
      aliases={'model': real_cell.MODEL},
      template=llama.BUNDLE.model,
    )
    cls.addClassCleanup(gateway.stop)
    cls.address = gateway.address.removeprefix('http://')
    cls.requests = json.loads(_RECORDED.read_text(encoding='utf-8'))
    cls.tokenizer = tokenizers.Tokenizer.from_file(llama.BUNDLE.tokenizer)
    reference = json.loads(pathlib.Path(llama.BUNDLE.reference).read_text())
    articles = dataset.load_articles(gptj.BUNDLE.dataset)
    cls.answers = {
      article.filled(dataset.LLAMA_TEMPLATE): cls.tokenizer.decode(tokens)
      for article, tokens in zip(articles, reference['tokens'], strict=True)
    }

  def send(self, request: dict[str, Any]) -> tuple[str, bytes]:
    """Returns the type and the body of the answer, which must be a success."""
    connection = http.client.HTTPConnection(self.address, timeout=300)
    self.addCleanup(connection.close)
    connection.request(
      request['method'],
      request['path'],
      request['body'].encode(),
      request['headers'],
    )
    response = connection.getresponse()
    body = response.read()
    self.assertEqual(response.status, 200, body)
    return response.headers.get_content_type(), body

  def expected(self, fields: dict[str, Any]) -> str:
    """Returns the reference's answer to the prompt of a request."""
    if 'prompt' in fields:
      return self.answers[self.tokenizer.decode(fields['prompt'])]
    [message] = fields['messages']
    return self.answers[message['content']]

  def streamed(self, body: bytes) -> Iterator[dict[str, Any]]:
    """Yields the choices of a stream, which the client reads."""
    *events, last, rest = body.split(b'\n\n')
    self.assertEqual((last, rest), (b'data: [DONE]', b''))
    for event in events:
      [data] = _DATA.findall(event)
      self.assertEqual(event, b'data: ' + data)
      [choice] = json.loads(data)['choices']
      yield choice

  def test_recorded_kinds(self):
    kinds = collections.Counter(
      (r['path'], r['headers']['Accept']) for r in self.requests
    )
    self.assertLen(kinds, 2 * len(_WHOLE))
    self.assertEqual(set(kinds.values()), {2})

  def test_whole_answers(self):
    for request in self.requests:
      fields = json.loads(request['body'])
      if fields.get('stream'):
        continue
      kind, body = self.send(request)
      self.assertEqual(kind, 'application/json')
      answer = json.loads(body)
      self.assertContainsSubset(_WHOLE[request['path']], answer)
      [choice] = answer['choices']
      text = (
        choice['text'] if 'prompt' in fields else choice['message']['content']
      )
      self.assertEqual(text, self.expected(fields))
      self.assertEqual(choice['finish_reason'], 'stop')

  def test_streams(self):
    for request in self.requests:
      fields = json.loads(request['body'])
      if not fields.get('stream'):
        continue
      kind, body = self.send(request)
      self.assertEqual(kind, 'text/event-stream')
      choices = list(self.streamed(body))
      reasons = [choice['finish_reason'] for choice in choices]
      self.assertEqual(reasons.pop(), 'stop')
      self.assertEqual(set(reasons), {None})
      texts = [
        c['text'] if 'prompt' in fields else c['delta'].get('content', '')
        for c in choices
      ]
      self.assertEqual(''.join(texts), self.expected(fields))
      # The first event with a text sets the time to the first token, so the
      # answer must arrive token by token.
      self.assertGreater(len([text for text in texts if text]), 5)


if __name__ == '__main__':
  absltest.main()
