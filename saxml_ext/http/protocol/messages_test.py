"""Tests which messages are accepted, for all templates."""

import json
import pathlib

from absl.testing import absltest
from absl.testing import parameterized

from saxml_ext.http.protocol import chat
from saxml_ext.http.protocol import checkpoint_templates
from saxml_ext.http.protocol import fields
from saxml_ext.http.protocol import problems
from saxml_ext.http.protocol import templates

_DIRECTORY = pathlib.Path(chat.__file__).parents[1] / 'testing/chat_templates'
_NAMES = ('chatml', 'llama2', 'llama3_1', 'mistral', 'qwen2')
_OWN = ('alpaca', 'bare', 'chatml', 'dialogue', 'llama-2', 'plain')
_TOKENS = {
  'bos_token': '<s>',
  'eos_token': '</s>',
  'added_token_9': '<|im_end|>',
}
_RESULT = {'role': 'tool', 'tool_call_id': 'call12345', 'content': '3'}
_PARTS = [{'type': 'text', 'text': 'a'}, {'type': 'input_text', 'text': 'b'}]
_IMAGE = {'type': 'image_url', 'image_url': {'url': 'data:image/png;base64,'}}


def _user(content):
  return {'role': 'user', 'content': content}


def _calling(arguments):
  function = {'name': 'add', 'arguments': arguments}
  call = {'id': 'call12345', 'type': 'function', 'function': function}
  return {'role': 'assistant', 'content': None, 'tool_calls': [call]}


def _template(name):
  source = (_DIRECTORY / f'{name}.jinja').read_text('utf-8')
  return checkpoint_templates.CheckpointTemplate(
    {'default': source}, _TOKENS, f'{name}.jinja'
  )


def _prompt(template, messages, **members):
  request = fields.read({'messages': messages, **members}, chat.Request)
  return chat.render(request, template)[1]


class MessagesTest(parameterized.TestCase):
  def assert_refused(self, param, text, template, messages, **members):
    with self.assertRaisesRegex(problems.BadRequest, text) as e:
      _prompt(template, messages, **members)
    self.assertEqual(e.exception.param, param)
    self.assertLess(len(e.exception.message), 400)

  @parameterized.product(name=(*_NAMES, *_OWN), role=('system', 'user'))
  def test_parts_without_text_are_refused_by_name(self, name, role):
    template = templates.TEMPLATES.get(name) or _template(name)
    for part in (
      _IMAGE,
      {'type': 'input_audio', 'input_audio': {}},
      {'type': 'file', 'file': {}},
      {'type': 'refusal', 'refusal': 'x'},
      {'type': 5},
    ):
      self.assert_refused(
        'messages[1].content[1]',
        json.dumps(part['type']),
        template,
        [_user('x'), {'role': role, 'content': [*_PARTS[:1], part]}],
      )

  @parameterized.parameters('assistant', 'tool', 'function', 'developer')
  def test_no_role_has_images(self, role):
    self.assert_refused(
      'messages[0].content[0]',
      '"image_url"',
      _template('qwen2'),
      [{'role': role, 'content': [_IMAGE]}],
    )

  @parameterized.parameters(
    (5, '', 'send an object'),
    ({'content': 'x'}, '.role', 'null is not one of system, developer'),
    ({'role': 'usr', 'content': 'x'}, '.role', '"usr" is not one of'),
    ({'role': ['user'], 'content': 'x'}, '.role', 'is not one of'),
    ({'role': 'user'}, '.content', 'it is missing'),
    ({'role': 'user', 'content': None}, '.content', 'it is missing'),
    ({'role': 'user', 'content': 5}, '.content', '5 is not a string'),
    ({'role': 'user', 'content': {}}, '.content', '{} is not a string'),
    ({'role': 'user', 'content': []}, '.content', 'it is empty'),
    (_user([{'type': 'text'}]), '.content[0].text', 'it is missing'),
    (_user([{'type': 'text', 'text': 1}]), '.content[0].text', 'not a string'),
    (_user([5]), '.content[0]', '5 is not an object'),
    (_user('x') | {'name': 5}, '.name', '5 is not a string'),
    (
      {'role': 'assistant', 'content': 'x', 'audio': {'id': 'a'}},
      '.audio',
      'reads only text',
    ),
    ({'role': 'assistant', 'tool_calls': {}}, '', ''),
    (
      {'role': 'assistant', 'tool_calls': 'x'},
      '.tool_calls',
      '"x" is not an array',
    ),
    (
      {'role': 'assistant', 'tool_calls': [{'id': 'a'}]},
      '.tool_calls[0].function',
      'send an object',
    ),
    (
      {'role': 'assistant', 'tool_calls': [{'function': {'arguments': ''}}]},
      '.tool_calls[0].function.name',
      'it is missing',
    ),
    (
      _calling('{"a": '),
      '.tool_calls[0].function.arguments',
      'it is not valid JSON',
    ),
    (_calling('[1]'), '.tool_calls[0].function.arguments', 'not an object'),
    (_calling('"{}"'), '.tool_calls[0].function.arguments', 'not an object'),
    (
      _calling('[' * 10**5),
      '.tool_calls[0].function.arguments',
      'it is not valid JSON',
    ),
    (
      {'role': 'assistant', 'function_call': {'name': 'f', 'arguments': '{'}},
      '.function_call.arguments',
      'it is not valid JSON',
    ),
  )
  def test_malformed_messages_are_named(self, message, param, text):
    template = _template('qwen2')
    if not text:
      _prompt(template, [message])
      return
    self.assert_refused(f'messages[0]{param}', text, template, [message])

  def test_calls_without_arguments_have_none(self):
    for arguments in ('', ' ', '{}', None, {}):
      prompt = _prompt(_template('qwen2'), [_user('x'), _calling(arguments)])
      self.assertIn('"arguments": {}}', prompt)

  @parameterized.parameters(
    *('messages', 'tools', 'documents', 'bos_token', 'eos_token', 'pad_token'),
    *('added_token_9', 'raise_exception', 'strftime_now', 'namespace', 'range'),
  )
  def test_reserved_variables_cannot_be_set(self, name):
    self.assert_refused(
      f'chat_template_kwargs.{name}',
      'cannot set this variable',
      _template('llama3_1'),
      [_user('x')],
      chat_template_kwargs={name: 'x'},
    )

  def test_other_variables_reach_the_template(self):
    variables = {
      'date_string': '1 Jan 2030',
      'enable_thinking': False,
      'add_generation_prompt': True,
      'continue_final_message': False,
    }
    prompt = _prompt(
      _template('llama3_1'), [_user('x')], chat_template_kwargs=variables
    )
    self.assertIn('Today Date: 1 Jan 2030', prompt)
    self.assertEndsWith(prompt, '<|end_header_id|>\n\n')
    for name, value in (
      ('add_generation_prompt', False),
      ('continue_final_message', True),
    ):
      self.assert_refused(
        f'chat_template_kwargs.{name}',
        'is not supported',
        _template('llama3_1'),
        [_user('x')],
        chat_template_kwargs={name: value},
      )


if __name__ == '__main__':
  absltest.main()
