"""Holds conversations with the default model of `serve`, as clients do."""

import json
import os

from absl.testing import absltest
import openai

from serve import programs
from tests.serve import serving

_NAME = 'SmolLM2-135M-Instruct'
_QUESTION = {'role': 'user', 'content': 'What is the capital of France?'}
# The request bodies that clients sent with their defaults. Those of Open WebUI
# and GuideLLM, which could not be installed, follow from their sources.
_REQUESTS = os.path.join(programs.ROOT, 'tests/serve/client_requests.jsonl')
# An answer that is sampled may be as long as the context, which takes minutes.
_MAX_TOKENS = 16


class DefaultModelTest(serving.ServeCase):
  def test_clients_hold_conversations(self):
    port = self.start()
    self.assertIn(f'Ready: {_NAME}', self.text)
    self.assertIn('int8, because the weights are Q4_1', self.text)
    client = openai.OpenAI(
      base_url=f'http://127.0.0.1:{port}/v1', api_key='none', timeout=1500
    )
    with self.subTest('models'):
      self.assertEqual([m.id for m in client.models.list().data], [_NAME])
    with self.subTest('conversation'):
      self._converse(client)
    with self.subTest('recorded requests'):
      self._replay(client)
    with self.subTest('ask'):
      done = self.run_program('serve/ask', _QUESTION['content'], port=port)
      self.assertEqual(done.returncode, 0, done.stderr)
      self.assertIn('Paris', done.stdout)
    with self.subTest('errors and metrics have the name of the client'):
      with self.assertRaisesRegex(openai.NotFoundError, 'other') as error:
        client.chat.completions.create(model='other', messages=[_QUESTION])
      self.assertNotIn('/sax/', str(error.exception))
      metrics = client.with_options().get(
        f'http://127.0.0.1:{port}/metrics', cast_to=str
      )
      self.assertIn(f'model_name="{_NAME}"', metrics)
      self.assertNotIn('/sax/', metrics)

  def _converse(self, client: openai.OpenAI) -> None:
    messages = [_QUESTION]
    answer = client.chat.completions.create(
      model=_NAME, messages=messages, temperature=0
    )
    [choice] = answer.choices
    self.assertEqual(choice.finish_reason, 'stop')
    self.assertIn('Paris', choice.message.content)
    messages += [
      choice.message,
      {'role': 'user', 'content': 'Write that city in capital letters.'},
    ]
    stream = client.chat.completions.create(
      model=_NAME, messages=messages, stream=True, temperature=0, max_tokens=32
    )
    text = ''.join(chunk.choices[0].delta.content or '' for chunk in stream)
    self.assertIn('PARIS', text.upper())

  def _replay(self, client: openai.OpenAI) -> None:
    with open(_REQUESTS, encoding='utf-8') as file:
      requests = [json.loads(line) for line in file]
    self.assertNotEmpty(requests)
    for recorded in requests:
      body = {'max_tokens': _MAX_TOKENS} | recorded['body']
      self.assertLessEqual(body['max_tokens'], 1000)
      with self.subTest(recorded['client']):
        # An error status raises an exception.
        answer = client.post(recorded['route'], cast_to=str, body=body)
        self.assertIn(_NAME, answer)


if __name__ == '__main__':
  absltest.main()
