"""Tests which parameters the gateway accepts, over a test cell."""

from absl.testing import absltest
import openai
from openai.types import completion_create_params
from openai.types.chat import completion_create_params as chat_params

from saxml_ext.http.testing import gateway_case


class ParametersTest(gateway_case.GatewayCase):
  def test_parameters(self):
    for name, value in (
      ('tools', [{'type': 'function', 'function': {'name': 'f'}}]),
      ('presence_penalty', 0.5),
      ('logit_bias', {'5': 1}),
      ('response_format', {'type': 'json_object'}),
      ('max_tokens', 0),
      ('max_tokens', True),
      ('temperature', float(10**9)),
      ('n', 10**400),
      ('stop', ['a'] * 17),
      ('stop', ['']),
      ('top_p', 0),
      ('early_stopping', 1),
      ('stream_options', {'include_usage': True}),
      ('messages', [{'role': 'user', 'content': 'x'}]),
      ('guided_json', {}),
      ('skip_special_tokens', False),
      ('prompt_logprobs', 1),
    ):
      with self.assertRaises(openai.BadRequestError, msg=name) as e:
        self.client().completions.create(
          model='m', prompt='x', extra_body={name: value}
        )
      self.assertEqual(e.exception.param, name)
    self.assertEqual(self.server.requests, [])

  def test_neutral_values_are_accepted(self):
    for completions, body in (
      (True, {'suffix': '', 'echo': False, 'best_of': 1, 'top_logprobs': 0}),
      (False, {'top_logprobs': 0}),
      (False, {'logprobs': False, 'top_logprobs': 0, 'modalities': ['text']}),
      (False, {'tool_choice': 'auto', 'tools': [], 'functions': []}),
      *(
        (kind, body)
        for kind in (True, False)
        for body in (
          {'stop': ''},
          {'stop': [], 'seed': None, 'n': 1.0, 'max_tokens': 5.0},
          {'length_penalty': 1.0, 'early_stopping': False},
          {'spaces_between_special_tokens': False},
          {'spaces_between_special_tokens': True, 'skip_special_tokens': True},
          {'verbosity': 'low', 'service_tier': 'flex', 'store': True},
          {'store': False, 'metadata': {'a': 'b'}, 'user': 'me'},
          {'web_search_options': {}, 'prompt_cache_key': 'x'},
          {'safety_identifier': 'x', 'parallel_tool_calls': False},
          {'reasoning_effort': 'high', 'include_reasoning': True},
          {'response_format': {'type': 'text'}, 'logit_bias': {}},
          {'min_p': 0.0, 'repetition_penalty': 1.0, 'bad_words': []},
          {'presence_penalty': 0, 'frequency_penalty': 0.0},
          {'ignore_eos': False, 'min_tokens': 0, 'use_beam_search': False},
          {'guided_json': None, 'guided_decoding_backend': 'auto'},
          {'truncate_prompt_tokens': None, 'allowed_token_ids': None},
          {'include_stop_str_in_output': False, 'documents': []},
          {'vllm_xargs': {}, 'kv_transfer_params': {}, 'cache_salt': 'x'},
          {'prediction': {'type': 'content', 'content': 'x'}},
          {'stop_token_ids': [], 'priority': 0, 'request_id': 'r'},
          {'top_k': -1},
          {'top_k': 0},
          {'top_k': 100_000, 'temperature': 2.5},
        )
      ),
    ):
      path = '/v1/completions' if completions else '/v1/chat/completions'
      messages = [{'role': 'user', 'content': 'x'}]
      whole = {'prompt': 'x'} if completions else {'messages': messages}
      status, got, _ = self.fetch(path, whole | body, self.strict())
      self.assertEqual(status, 200, (body, got))
      request = self.server.requests[-1]
      self.assertEqual(list(request.stop), [])
      if 'top_k' in body:
        self.assertEqual(request.top_k, max(0, body['top_k']))

  def strict(self):
    """Returns a gateway that rejects unknown fields."""
    cls = type(self)
    if not hasattr(cls, 'strict_gateway'):
      cls.strict_gateway = cls.start_gateway(strict_requests=True)
    return cls.strict_gateway

  def test_all_parameters_of_openai_are_known(self):
    kinds = (
      (completion_create_params.CompletionCreateParamsBase, '/v1/completions'),
      (
        chat_params.CompletionCreateParamsBase,
        '/v1/chat/completions',
      ),
    )
    for kind, path in kinds:
      for name in kind.__annotations__.keys() - {'model'}:
        status, got, _ = self.fetch(path, {name: {'x': 'y'}}, self.strict())
        message = got['error']['message']
        self.assertEqual(status, 400)
        self.assertNotIn(f'{name}: this server has no such', message)

  def test_any_seed_of_64_bits_is_accepted(self):
    for seed in (0, -1, 2**31, 2**32 + 5, 2**63 - 1, -(2**63)):
      self.client().completions.create(model='m', prompt='x', seed=seed)
      self.assertEqual(self.server.requests[-1].seed, seed % 2**32)
    with self.assertRaisesRegex(openai.BadRequestError, 'seed'):
      self.client().completions.create(model='m', prompt='x', seed=2**63)

  def test_unknown_fields_are_ignored_unless_strict(self):
    body = {
      'prompt': 'x',
      'chat_id': 'a',
      'keep_alive': 5,
      'options': {'num_ctx': 4},
      'cache_prompt': True,
      'thinking': {'type': 'disabled'},
      'stream': True,
      'stream_options': {'include_usage': True, 'extra': 1},
    }
    status, _, _ = self.fetch('/v1/completions', body)
    self.assertEqual(status, 200)
    for name, shown in (
      ('temprature', '"temperature"'),
      ('max_token', '"max_tokens"'),
      ('chat_id', ''),
    ):
      status, got, _ = self.fetch(
        '/v1/completions', {'prompt': 'x', name: 1}, self.strict()
      )
      self.assertEqual((status, got['error']['param']), (400, name))
      self.assertIn('no such parameter', got['error']['message'])
      self.assertIn(shown, got['error']['message'])
    predict = {'instances': [{'prompt': 'x', 'chat_id': 'a'}]}
    self.assertEqual(self.fetch('/predict', predict)[0], 200)
    self.assertEqual(self.fetch('/predict', predict, self.strict())[0], 400)

  def test_fields_of_the_other_route_have_a_hint(self):
    messages = [{'role': 'user', 'content': 'x'}]
    for path, body, hint in (
      ('/v1/chat/completions', {'prompt': 'x'}, '/v1/completions'),
      ('/v1/completions', {'messages': messages}, '/v1/chat/completions'),
    ):
      status, got, _ = self.fetch(path, body)
      self.assertEqual(status, 400)
      self.assertIn(hint, got['error']['message'])
      self.assertEqual(got['error']['param'], [*body][0])


if __name__ == '__main__':
  absltest.main()
