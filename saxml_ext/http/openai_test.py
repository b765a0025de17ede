"""Tests the gateway with the openai package, over a test cell."""

import asyncio

from absl.testing import absltest
import openai

from saxml_ext.http.testing import gateway_case
from saxml_ext.protobuf import completion_pb2

_KEYS = {'k-alice': 'alice'}


class CompletionsTest(gateway_case.GatewayCase):
  def test_whole_answer(self):
    got = self.client().completions.create(
      model='m', prompt='hello', max_tokens=3
    )
    [choice] = got.choices
    self.assertEqual((choice.text, choice.finish_reason), ('HEL', 'length'))
    self.assertEqual(choice.score, -0.5)
    self.assertEqual(choice.cumulative_logprob, -3)
    self.assertEqual(got.usage.prompt_tokens, 5)
    self.assertEqual(got.usage.completion_tokens, 3)
    self.assertEqual(got.usage.total_tokens, 8)
    self.assertEqual(got.model, 'm')
    self.assertEqual(got.object, 'text_completion')
    self.assertStartsWith(got.id, 'cmpl-')

  def test_stream(self):
    stream = self.client().completions.create(
      model='/sax/test/m',
      prompt='hello',
      n=2,
      logprobs=1,
      stream=True,
      stream_options={'include_usage': True},
    )
    *chunks, last = list(stream)
    for index in range(2):
      choices = [c.choices[0] for c in chunks if c.choices[0].index == index]
      self.assertEqual(''.join(c.text for c in choices), 'HELLO')
      self.assertEqual(choices[-1].finish_reason, 'stop')
      self.assertEqual(choices[-1].score, -0.5 - index)
      offsets = [o for c in choices for o in c.logprobs.text_offset]
      self.assertEqual(offsets, list(range(5)))
    self.assertTrue(all(c.usage is None for c in chunks))
    self.assertEqual(last.choices, [])
    self.assertEqual(last.usage.completion_tokens, 10)

  def test_continuous_usage(self):
    for prompt, ids in (('hello', False), ([104, 105], True)):
      *chunks, last = self.client().completions.create(
        model='m',
        prompt=prompt,
        n=2,
        stream=True,
        stream_options={'include_usage': True, 'continuous_usage_stats': True},
      )
      usages = [
        (c.usage.prompt_tokens, c.usage.completion_tokens) for c in chunks
      ]
      counts = [n for _, n in usages]
      self.assertEqual({n for n, _ in usages}, {len(prompt)}, ids)
      self.assertEqual(counts, sorted(counts))
      self.assertEqual((counts[0], counts[-1]), (1, 2 * len(prompt)))
      self.assertEqual(last.usage.completion_tokens, 2 * len(prompt))
      self.assertEqual(chunks[0].usage.total_tokens, len(prompt) + 1)
    stream = self.client().chat.completions.create(
      model='m',
      messages=[{'role': 'user', 'content': 'hi'}],
      stream=True,
      stream_options={'continuous_usage_stats': True},
    )
    self.assertTrue(all(c.usage is None for c in stream))

  def test_several_prompts(self):
    for stream in (False, True):
      for prompts in (['ab', 'c'], [[97, 98], [99]]):
        got = self.client().completions.create(
          model='m', prompt=prompts, n=2, stream=stream
        )
        texts = [''] * 4
        for part in got if stream else [got]:
          for choice in part.choices:
            texts[choice.index] += choice.text
        self.assertEqual(texts, ['AB', 'AB', 'C', 'C'])
    *_, last = self.client().completions.create(
      model='m',
      prompt=['abc', 'defgh'],
      stream=True,
      stream_options={'include_usage': True},
    )
    self.assertEqual(last.usage.prompt_tokens, 8)
    self.assertEqual(last.usage.completion_tokens, 8)

  def test_stop_reason(self):
    create = self.client().completions.create
    choice = create(model='m', prompt='x').choices[0]
    # As in vLLM, the model's end token is not reported as a stop reason.
    self.assertEqual((choice.finish_reason, choice.stop_reason), ('stop', None))
    ids = {'stop_token_ids': [7]}
    choice = create(model='m', prompt='x', extra_body=ids).choices[0]
    self.assertEqual((choice.finish_reason, choice.stop_reason), ('stop', 7))

  def test_logprobs_echo_and_ids(self):
    client = self.client()
    got = client.completions.create(model='m', prompt='hi', logprobs=2)
    logprobs = got.choices[0].logprobs
    self.assertEqual(logprobs.tokens, ['H', 'I'])
    self.assertEqual(logprobs.token_logprobs, [-1, -1])
    self.assertEqual(logprobs.top_logprobs[1], {'I': -1, '1': -2})
    got = client.completions.create(model='m', prompt='hi', echo=True)
    self.assertEqual(got.choices[0].text, 'hiHI')
    got = client.completions.create(
      model='m', prompt=[104, 105], extra_body={'return_token_ids': True}
    )
    self.assertEqual(got.choices[0].token_ids, [72, 73])
    self.assertEqual(got.choices[0].prompt_token_ids, [104, 105])

  def test_cell_gets_the_parameters(self):
    self.client().completions.create(
      model='m',
      prompt='x',
      max_tokens=9,
      temperature=0.5,
      top_p=0.25,
      n=2,
      best_of=4,
      seed=-1,
      stop=['a', 'b'],
      user='somebody',
      extra_body={
        'use_beam_search': True,
        'length_penalty': 2.0,
        'early_stopping': 'never',
        'min_tokens': 3,
        'top_k': 7,
        'stop_token_ids': [5],
        'ignore_eos': True,
        'add_special_tokens': False,
        'priority': -3,
      },
    )
    [request] = self.server.requests
    self.assertEqual(
      request,
      completion_pb2.CompleteRequest(
        model_key='/sax/test/m',
        text='x',
        max_tokens=9,
        min_tokens=3,
        temperature=0.5,
        top_k=7,
        top_p=0.25,
        seed=2**32 - 1,
        n=2,
        use_beam_search=True,
        num_beams=4,
        length_penalty=2.0,
        early_stopping=completion_pb2.EARLY_STOPPING_NEVER,
        stop=['a', 'b'],
        stop_token_ids=[5],
        ignore_eos=True,
        add_special_tokens=False,
        priority=-3,
      ),
    )

  def test_best_of_samples(self):
    got = self.client().completions.create(
      model='m', prompt='ab', n=2, best_of=3
    )
    # In the test service, later answers have a higher probability.
    self.assertEqual([c.index for c in got.choices], [0, 1])
    self.assertEqual([c.score for c in got.choices], [-2.5, -1.5])
    [request] = self.server.requests
    self.assertEqual((request.n, request.use_beam_search), (3, False))


class AsyncTest(gateway_case.GatewayCase):
  def test_many_requests_run_at_once(self):
    async def ask():
      async with openai.AsyncOpenAI(
        base_url=self.gateway.address + '/v1', api_key='none', max_retries=0
      ) as client:
        whole = [
          client.completions.create(model='m', prompt=f'a{i}')
          for i in range(20)
        ]
        got = await asyncio.gather(*whole)
        stream = await client.chat.completions.create(
          model='m',
          messages=[{'role': 'user', 'content': 'hi'}],
          stream=True,
        )
        parts = [c.choices[0].delta.content or '' async for c in stream]
        return [g.choices[0].text for g in got], ''.join(parts)

    texts, streamed = asyncio.run(ask())
    self.assertEqual(texts, [f'A{i}' for i in range(20)])
    self.assertEqual(streamed, 'HI')


class ErrorsTest(gateway_case.GatewayCase):
  def test_errors_of_the_cell_have_openai_types(self):
    for code, expected in (
      ('INVALID_ARGUMENT', openai.BadRequestError),
      ('PERMISSION_DENIED', openai.PermissionDeniedError),
      ('UNIMPLEMENTED', openai.InternalServerError),
      ('INTERNAL', openai.InternalServerError),
    ):
      with self.assertRaisesRegex(expected, f'injected {code}'):
        self.client().completions.create(model='m', prompt=f'err:{code}')

  def test_errors_of_the_cell_name_the_parameter(self):
    for stream in (False, True):
      for fields, param in (
        ({'max_tokens': 10**6}, 'max_tokens'),
        ({'prompt': 'x' * 200}, 'prompt'),
        ({'prompt': 'err:INVALID_ARGUMENT'}, None),
      ):
        with self.assertRaises(openai.BadRequestError) as e:
          self.client().completions.create(
            **{'model': 'm', 'prompt': 'x', 'stream': stream, **fields}
          )
        self.assertEqual(e.exception.param, param)

  def test_model_that_is_not_published(self):
    with self.assertRaises(openai.NotFoundError) as e:
      self.client().completions.create(model='other', prompt='x')
    self.assertEqual(e.exception.code, 'model_not_found')
    self.assertEqual(e.exception.param, 'model')

  def test_request_that_is_too_large_for_the_cell_is_not_repeated(self):
    gateway = self.start_gateway(max_body_bytes=2**26, queue_secs=60)
    body = {'prompt': 'x' * (17 * 2**20)}
    status, got, headers = self.fetch('/v1/completions', body, gateway)
    self.assertEqual(status, 413, got)
    self.assertIn('17825', got['error']['message'])
    self.assertIn(str(16 * 2**20), got['error']['message'])
    self.assertNotIn('retry-after', headers)

  def test_client_retries_after_the_delay_of_the_queue(self):
    client = self.client(max_retries=1)
    got = client.completions.create(model='m', prompt='full:0.02:1')
    self.assertEqual(got.choices[0].text, 'FULL:0.02:1')
    with self.assertRaises(openai.RateLimitError) as e:
      self.client().completions.create(model='m', prompt='full:2.5:9')
    headers = e.exception.response.headers
    self.assertEqual(headers['retry-after'], '3')
    self.assertEqual(headers['retry-after-ms'], '2500')

  def test_gateway_waits_for_a_full_queue(self):
    gateway = self.start_gateway(queue_secs=60)
    for stream in (False, True):
      prompt = f'full:0.02:2:{stream}'
      got = self.client(gateway).completions.create(
        model='m', prompt=prompt, stream=stream
      )
      parts = got if stream else [got]
      text = ''.join(part.choices[0].text for part in parts)
      self.assertEqual(text, prompt.upper())

  def test_error_in_a_stream_is_an_event(self):
    stream = self.client().completions.create(
      model='m', prompt='break:2', stream=True
    )
    got = []
    with self.assertRaisesRegex(
      openai.APIError, 'the replica of m is gone'
    ) as e:
      got.extend(chunk.choices[0].text for chunk in stream)
    self.assertEqual(got, ['B', 'R'])
    self.assertEqual(e.exception.code, 'unavailable')
    _, text, _ = self.fetch(
      '/v1/completions', {'prompt': 'break:2', 'stream': True}
    )
    *_, error, end = text.split('\n\n')[:-1]
    self.assertIn('the replica of /sax/test/m is gone', error)
    self.assertEqual(end, 'data: [DONE]')
    _, text, _ = self.fetch('/metrics')
    self.assertIn('requests_total{code="503",model_name="/sax/test/m"', text)

  def check_ends_in_the_cell(self, error, client, **headers):
    """Repeats a request until one has reached the cell before its timeout."""
    for _ in range(100):
      self.server.running.clear()
      self.server.cancelled.clear()
      with self.assertRaises(error) as e:
        client.completions.create(
          model='m', prompt='endless:0.01', extra_headers=headers
        )
      if self.server.running.is_set():
        self.assertTrue(self.server.cancelled.wait(60))
        return e.exception
    self.fail('no request reached the cell within its time')

  def test_deadlines(self):
    # The package sends its timeout, so the gateway might end the request before
    # the package does. The header prevents this.
    self.check_ends_in_the_cell(
      openai.APITimeoutError,
      self.client(timeout=0.2),
      **{'x-stainless-read-timeout': '600'},
    )
    for name in ('x-request-timeout', 'x-stainless-read-timeout'):
      error = self.check_ends_in_the_cell(
        openai.InternalServerError, self.client(timeout=600), **{name: '0.2'}
      )
      self.assertEqual(error.status_code, 504)

  def test_disconnected_client_frees_its_slot(self):
    stream = self.client().completions.create(
      model='m', prompt='endless:0.01', stream=True
    )
    self.assertEqual(next(stream).choices[0].text, 'x')
    self.assertFalse(self.server.cancelled.is_set())
    stream.close()
    self.assertTrue(self.server.cancelled.wait(60))

  def test_error_of_one_prompt_fails_the_request(self):
    for stream in (False, True):
      with self.assertRaisesRegex(openai.APIError, 'injected INTERNAL'):
        got = self.client().completions.create(
          model='m', prompt=['abc', 'err:INTERNAL'], stream=stream
        )
        list(got)
    stream = self.client().completions.create(
      model='m', prompt=['endless:0.01', 'abc'], stream=True
    )
    texts = ['', '']
    while texts[1] != 'ABC':
      choice = next(stream).choices[0]
      texts[choice.index] += choice.text
    stream.close()
    self.assertTrue(self.server.cancelled.wait(60))

  def test_api_keys(self):
    gateway = self.start_gateway(name_of=_KEYS.get)
    with self.assertRaises(openai.AuthenticationError) as e:
      self.client(gateway).completions.create(model='m', prompt='x')
    self.assertEqual(e.exception.code, 'invalid_api_key')
    self.assertEqual(self.server.requests, [])
    client = self.client(gateway, api_key='k-alice')
    client.completions.create(model='m', prompt='x')
    self.assertEqual(self.server.metadata[-1]['sax-caller'], 'alice')

  def test_too_large_body_is_refused(self):
    gateway = self.start_gateway(max_body_bytes=1000)
    with self.assertRaises(openai.APIStatusError) as e:
      self.client(gateway).completions.create(model='m', prompt='x' * 4000)
    self.assertEqual(e.exception.status_code, 413)

  def test_requests_in_flight_are_bounded(self):
    gateway = self.start_gateway(max_in_flight=1)
    stream = self.client(gateway).completions.create(
      model='m', prompt='endless:0.01', stream=True
    )
    next(stream)
    with self.assertRaisesRegex(openai.RateLimitError, 'in flight'):
      self.client(gateway).completions.create(model='m', prompt='x')
    stream.close()
    self.assertTrue(self.server.cancelled.wait(60))
    got = self.client(gateway, max_retries=9).completions.create(
      model='m', prompt='x'
    )
    self.assertEqual(got.choices[0].text, 'X')


if __name__ == '__main__':
  absltest.main()
