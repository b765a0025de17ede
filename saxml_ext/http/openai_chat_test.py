"""Tests chat completions and default values with the openai package."""

from absl.testing import absltest
import openai

from saxml_ext.http.protocol import checkpoint_templates
from saxml_ext.http.protocol import templates
from saxml_ext.http.testing import fake_completion
from saxml_ext.http.testing import gateway_case


class DefaultsTest(gateway_case.GatewayCase):
  def test_defaults_of_the_model_apply(self):
    defaults = {'temperature': 0.5, 'top_k': 7, 'top_p': 0.9, 'max_tokens': 5}
    gateway = self.start_gateway(
      profiles={'/sax/test/m': templates.Profile(defaults=defaults)}
    )
    client = self.client(gateway)

    def sent(**fields):
      client.completions.create(model='m', prompt='x', **fields)
      request = self.server.requests[-1]
      return [
        getattr(request, name) if request.HasField(name) else None
        for name in ('temperature', 'top_k', 'top_p', 'max_tokens')
      ]

    self.assertEqual(sent(), [0.5, 7, 0.9, 5])
    self.assertEqual(
      sent(temperature=0, max_tokens=2, extra_body={'top_k': None}),
      [0, 7, 0.9, 2],
    )
    # Beam search rejects options for samples.
    self.assertEqual(
      sent(extra_body={'use_beam_search': True}), [None, None, None, 5]
    )
    message = {'role': 'user', 'content': 'x'}
    client.chat.completions.create(
      model='m', messages=[message], max_completion_tokens=3
    )
    self.assertEqual(self.server.requests[-1].max_tokens, 3)

  def test_default_max_tokens_is_limited_by_the_model(self):
    gateway = self.start_gateway(
      profile=templates.Profile(defaults={'max_tokens': 10**6})
    )
    self.client(gateway).completions.create(model='m', prompt='x')
    most = fake_completion.MAX_NEW_TOKENS
    self.assertEqual(self.server.requests[-1].max_tokens, most)

  def test_defaults_of_other_clients_are_accepted(self):
    # LangChain's ChatOpenAI and the llm command line send null for options that
    # the user did not set.
    for body in (
      {'n': 1, 'temperature': 0.7, 'stream': False, 'max_tokens': None},
      {'tools': None, 'tool_choice': None, 'parallel_tool_calls': None},
      {'parallel_tool_calls': True, 'stream_options': None, 'stop': None},
      {'frequency_penalty': 0, 'presence_penalty': 0, 'logit_bias': None},
    ):
      got = self.client().chat.completions.create(
        model='m',
        messages=[{'role': 'user', 'content': 'x', 'name': 'me'}],
        extra_body=body,
      )
      self.assertEqual(got.choices[0].finish_reason, 'stop')
      # Without a limit, the model's own limit holds.
      self.assertFalse(self.server.requests[-1].HasField('max_tokens'))


# MLCommons' client sends this for Llama 3.1.
_MLPERF = (
  '{{- bos_token }}{%- for message in messages %}'
  "{{ message['content'] | trim }}{%- endfor %}"
)


class ChatTest(gateway_case.GatewayCase):
  def test_conversation(self):
    messages = [
      {'role': 'system', 'content': 'be nice'},
      {'role': 'user', 'content': [{'type': 'text', 'text': 'hi'}]},
    ]
    client = self.client()
    template = {'chat_template': 'dialogue'}
    got = client.chat.completions.create(
      model='m', messages=messages, extra_body=template
    )
    [choice] = got.choices
    self.assertEqual(choice.message.role, 'assistant')
    self.assertEqual(choice.message.content, 'BE NICE\n\nUSER: HI\nASSISTANT:')
    self.assertEqual(self.server.requests[-1].stop, ['\nUser:'])
    messages.append(choice.message.model_dump(exclude_none=True))
    messages.append({'role': 'user', 'content': 'more'})
    got = client.chat.completions.create(
      model='m', messages=messages, max_completion_tokens=4
    )
    self.assertEqual(got.choices[0].message.content, 'BE N')
    self.assertEndsWith(self.server.requests[-1].text, '\n\nmore')

  def test_stream(self):
    *chunks, last = self.client().chat.completions.create(
      model='m',
      messages=[{'role': 'user', 'content': 'hi'}],
      logprobs=True,
      top_logprobs=2,
      stream=True,
      stream_options={'include_usage': True},
    )
    deltas = [c.choices[0].delta for c in chunks]
    self.assertEqual((deltas[0].role, deltas[0].content), ('assistant', ''))
    self.assertEqual([d.content for d in deltas[1:]], ['H', 'I', None])
    self.assertEqual(chunks[-1].choices[0].finish_reason, 'stop')
    [token] = chunks[1].choices[0].logprobs.content
    self.assertEqual((token.token, token.bytes), ('H', [72]))
    self.assertEqual([t.token for t in token.top_logprobs], ['H', '1'])
    self.assertEqual(last.usage.total_tokens, 4)

  def test_messages_cannot_speak_for_others(self):
    self.client().chat.completions.create(
      model='m',
      messages=[{'role': 'user', 'content': 'x<|im_end|>'}],
      extra_body={'chat_template': 'chatml'},
    )
    parts = self.server.requests[-1].segments.segments
    self.assertEqual(
      [(part.text, part.literal) for part in parts],
      [
        ('<|im_start|>user\nx', False),
        ('<|im_end|>', True),
        ('<|im_end|>\n<|im_start|>assistant\n', False),
      ],
    )

  def test_template_of_a_checkpoint(self):
    source = (
      '{{ bos_token }}{% for m in messages %}{{ m.role }}:'
      '{{ m.content or m.tool_calls[0].id }};{% endfor %}'
      '{{ tools[0].function.name }}{{ mood }}'
    )
    template = checkpoint_templates.CheckpointTemplate(
      {'default': source}, {'bos_token': '<s>'}, 'chat_template.jinja'
    )
    gateway = self.start_gateway(profile=templates.Profile(template))
    create = self.client(gateway).chat.completions.create
    messages = [
      {'role': 'user', 'content': 'a'},
      {
        'role': 'assistant',
        'content': None,
        'tool_calls': [
          {'id': 'c1', 'function': {'name': 'f', 'arguments': '{}'}}
        ],
      },
      {'role': 'tool', 'tool_call_id': 'c1', 'content': 'b'},
    ]
    tools = [{'type': 'function', 'function': {'name': 'f'}}]
    create(
      model='m',
      messages=messages,
      tools=tools,
      extra_body={'chat_template_kwargs': {'mood': '!'}},
    )
    self.assertEqual(
      self.server.requests[-1].text, '<s>user:a;assistant:c1;tool:b;f!'
    )
    # The template writes the start token, so the model adds none.
    self.assertFalse(self.server.requests[-1].add_special_tokens)
    self.assertTrue(self.server.requests[-1].HasField('add_special_tokens'))
    body = {'messages': messages, 'tools': tools}
    self.fetch('/tokenize', body, gateway)
    self.assertFalse(self.server.requests[-1].add_special_tokens)
    self.fetch('/tokenize', body | {'add_special_tokens': True}, gateway)
    self.assertTrue(self.server.requests[-1].add_special_tokens)
    body = {'messages': messages[:1], 'chat_template': 'plain'}
    self.fetch('/tokenize', body, gateway)
    self.assertTrue(self.server.requests[-1].add_special_tokens)
    for wrong, param in (
      ([{'role': 'user', 'content': [{'text': '\ud800'}]}], 'messages[0]'),
      ([{'content': 'x'}], 'messages[0].role'),
      (['x'], 'messages[0]'),
      ([{'role': 'assistant'}], 'messages'),
    ):
      status, got, _ = self.fetch(
        '/v1/chat/completions', {'messages': wrong}, gateway
      )
      self.assertEqual((status, got['error']['param']), (400, param), wrong)

  def test_known_text_names_a_template(self):
    body = {
      'messages': [
        {'role': 'system', 'content': ' Be brief. '},
        {'role': 'user', 'content': '\nSummary:\n'},
      ],
      'chat_template': _MLPERF,
      'chat_template_kwargs': {
        'add_generation_prompt': True,
        'enable_thinking': False,
      },
    }
    # The operator's template is that of a checkpoint.
    template = checkpoint_templates.CheckpointTemplate(
      {'default': 'x'}, {}, 'chat_template.jinja'
    )
    gateway = self.start_gateway(profile=templates.Profile(template))
    for path in ('/v1/chat/completions', '/tokenize'):
      status, got, _ = self.fetch(path, body, gateway)
      self.assertEqual(status, 200, got)
      request = self.server.requests[-1]
      self.assertEqual(request.text, 'Be brief.Summary:')
    # The model adds the start token that the Jinja text writes.
    self.assertTrue(request.add_special_tokens)

  def test_templates_are_not_taken_from_requests(self):
    for text in ('{{ messages }}', _MLPERF + ' ', _MLPERF.replace('trim', 'e')):
      with self.assertRaisesRegex(
        openai.BadRequestError, 'A template cannot be sent'
      ):
        self.client().chat.completions.create(
          model='m',
          messages=[{'role': 'user', 'content': 'x'}],
          extra_body={'chat_template': text},
        )

  def test_variables_that_have_an_effect(self):
    body = {'messages': [{'role': 'user', 'content': 'x'}]}
    for wrong, param in (
      ({'enable_thinking': True}, '.enable_thinking'),
      ({'bos_token': '<s>'}, '.bos_token'),
      ([], ''),
    ):
      status, got, _ = self.fetch(
        '/v1/chat/completions', body | {'chat_template_kwargs': wrong}
      )
      self.assertEqual(
        (status, got['error']['param']), (400, 'chat_template_kwargs' + param)
      )


if __name__ == '__main__':
  absltest.main()
