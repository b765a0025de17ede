"""Tests how conversations become prompts, for the usual chat templates.

The templates have the structure of those of ChatML, Llama 2, Llama 3.1, Mistral
and Qwen2. The judge is `apply_chat_template` of transformers.
"""

import pathlib

from absl.testing import absltest
from absl.testing import parameterized
from transformers.utils import chat_template_utils

from saxml_ext.http.protocol import chat
from saxml_ext.http.protocol import checkpoint_templates
from saxml_ext.http.protocol import fields
from saxml_ext.http.protocol import problems
from saxml_ext.http.protocol import templates

_DIRECTORY = pathlib.Path(chat.__file__).parents[1] / 'testing/chat_templates'
_NAMES = ('chatml', 'llama2', 'llama3_1', 'mistral', 'qwen2')
_OWN = ('alpaca', 'bare', 'chatml', 'dialogue', 'llama-2', 'plain')
_TOKENS = {'bos_token': '<s>', 'eos_token': '</s>'}
_TOOLS = [
  {'type': 'function', 'function': {'name': 'add', 'parameters': {'a': 1}}}
]


def _user(content):
  return {'role': 'user', 'content': content}


def _call(arguments, name='add'):
  function = {'name': name, 'arguments': arguments}
  return {'id': 'call12345', 'type': 'function', 'function': function}


def _calling(arguments):
  return {
    'role': 'assistant',
    'content': None,
    'tool_calls': [_call(arguments)],
  }


_CALLED = _calling({'a': 1, 'b': 'ü'}) | {'content': ''}
_RESULT = {'role': 'tool', 'tool_call_id': 'call12345', 'content': '3'}
_PARTS = [{'type': 'text', 'text': 'a'}, {'type': 'input_text', 'text': 'b'}]

# The messages of a request, and the same messages in the form for templates.
_RENDERED = {
  'text': ([_user(' Hi & ü ')], [_user(' Hi & ü ')]),
  'parts': ([_user(_PARTS)], [_user('a\nb')]),
  'parts_of_assistant': (
    [
      _user('x'),
      {'role': 'assistant', 'content': _PARTS},
      _user([{'type': 'text', 'text': 'y'}]),
    ],
    [_user('x'), {'role': 'assistant', 'content': 'a\nb'}, _user('y')],
  ),
  'refusal': (
    [
      _user('x'),
      {
        'role': 'assistant',
        'content': [{'type': 'refusal', 'refusal': 'No.'}],
      },
      _user('y'),
      {'role': 'assistant', 'content': None, 'refusal': 'No.'},
      _user('z'),
    ],
    [
      _user('x'),
      {'role': 'assistant', 'content': 'No.'},
      _user('y'),
      {'role': 'assistant', 'content': 'No.'},
      _user('z'),
    ],
  ),
  'null_content': (
    [
      _user('x'),
      {'role': 'assistant', 'content': None, 'tool_calls': None},
      _user('y'),
      {'role': 'assistant', 'tool_calls': []},
      _user('z'),
    ],
    [
      _user('x'),
      {'role': 'assistant', 'content': ''},
      _user('y'),
      {'role': 'assistant', 'content': ''},
      _user('z'),
    ],
  ),
  'developer': (
    [{'role': 'developer', 'content': 'Be brief.'}, _user('x')],
    [{'role': 'system', 'content': 'Be brief.'}, _user('x')],
  ),
  'empty_system': (
    [{'role': 'system', 'content': ''}, _user('x')],
    [{'role': 'system', 'content': ''}, _user('x')],
  ),
  'several_turns': (
    [
      {'role': 'system', 'content': [{'type': 'text', 'text': 'Be brief.'}]},
      _user('a'),
      {
        'role': 'assistant',
        'content': 'b',
        'id': 'm1',
        'annotations': [],
        'audio': None,
        'reasoning_content': 'hm',
        'refusal': None,
        'function_call': None,
      },
      _user('c') | {'timestamp': 5},
    ],
    [
      {'role': 'system', 'content': 'Be brief.'},
      _user('a'),
      {'role': 'assistant', 'content': 'b'},
      _user('c'),
    ],
  ),
}
_WITH_TOOLS = {
  'tool_call': (
    [_user('x'), _calling('{"a": 1, "b": "ü"}')],
    [_user('x'), _CALLED],
  ),
  'object_as_arguments': (
    [_user('x'), _calling({'a': 1, 'b': 'ü'}), _RESULT],
    [_user('x'), _CALLED, _RESULT],
  ),
  'tool_result': (
    [
      _user('x'),
      _calling('{"a": 1, "b": "ü"}'),
      _RESULT | {'content': [{'type': 'text', 'text': '3'}]},
      {'role': 'assistant', 'content': 'three'},
      _user('thanks'),
    ],
    [
      _user('x'),
      _CALLED,
      _RESULT,
      {'role': 'assistant', 'content': 'three'},
      _user('thanks'),
    ],
  ),
}


def _template(name):
  source = (_DIRECTORY / f'{name}.jinja').read_text('utf-8')
  return checkpoint_templates.CheckpointTemplate(
    {'default': source}, _TOKENS, f'{name}.jinja'
  )


def _prompt(template, messages, **members):
  request = fields.read({'messages': messages, **members}, chat.Request)
  return chat.render(request, template)[1]


class ChatTest(parameterized.TestCase):
  def assert_refused(self, param, text, template, messages, **members):
    with self.assertRaisesRegex(problems.BadRequest, text) as e:
      _prompt(template, messages, **members)
    self.assertEqual(e.exception.param, param)
    self.assertLess(len(e.exception.message), 400)

  def assert_like_transformers(self, name, messages, normal, tools=None):
    template = _template(name)
    [expected], _ = chat_template_utils.render_jinja_template(
      [normal],
      tools=tools,
      chat_template=(_DIRECTORY / f'{name}.jinja').read_text('utf-8'),
      add_generation_prompt=True,
      **_TOKENS,
    )
    members = {'tools': tools} if tools else {}
    self.assertEqual(_prompt(template, messages, **members), expected)
    for trace in ("'type'", "{'", 'None', '\\"'):
      self.assertNotIn(trace, expected)

  @parameterized.product(name=_NAMES, case=(*_RENDERED,))
  def test_messages_are_rendered_like_transformers(self, name, case):
    self.assert_like_transformers(name, *_RENDERED[case])

  @parameterized.product(
    name=('llama3_1', 'mistral', 'qwen2'),
    case=(*_WITH_TOOLS,),
    tools=(None, _TOOLS),
  )
  def test_tools_are_rendered_like_transformers(self, name, case, tools):
    self.assert_like_transformers(name, *_WITH_TOOLS[case], tools)

  @parameterized.product(name=('chatml', 'llama2'), case=(*_WITH_TOOLS,))
  def test_templates_without_tools_lose_no_call(self, name, case):
    messages, _ = _WITH_TOOLS[case]
    self.assert_refused(
      'messages[1].tool_calls',
      'does not show calls of tools',
      _template(name),
      messages,
    )

  @parameterized.parameters('chatml', 'llama2', *_OWN)
  def test_templates_without_tools_refuse_tools(self, name):
    template = templates.TEMPLATES.get(name) or _template(name)
    messages = [_user('x')]
    self.assert_refused(
      'tools', '"tool_choice": "none"', template, messages, tools=_TOOLS
    )
    plain = _prompt(template, messages)
    for members in (
      {'tools': _TOOLS, 'tool_choice': 'none'},
      {'tools': [], 'tool_choice': 'auto'},
      {'tools': None},
    ):
      self.assertEqual(_prompt(template, messages, **members), plain)

  def test_tool_choice_none_hides_the_tools(self):
    template = _template('qwen2')
    messages = [_user('x')]
    self.assertIn('<tools>', _prompt(template, messages, tools=_TOOLS))
    hidden = _prompt(template, messages, tools=_TOOLS, tool_choice='none')
    self.assertEqual(hidden, _prompt(template, messages))
    for choice in ('required', {'type': 'function'}):
      self.assert_refused(
        'tool_choice',
        'is not supported',
        template,
        messages,
        tools=_TOOLS,
        tool_choice=choice,
      )

  def test_older_function_calls_are_tool_calls(self):
    old = [
      _user('x'),
      {
        'role': 'assistant',
        'content': None,
        'function_call': {'name': 'add', 'arguments': '{"a": 1}'},
      },
      {'role': 'function', 'name': 'add', 'content': '3'},
    ]
    call = {'name': 'add', 'arguments': {'a': 1}}
    normal = [
      _user('x'),
      {
        'role': 'assistant',
        'content': '',
        'tool_calls': [{'type': 'function', 'function': call}],
      },
      {'role': 'tool', 'name': 'add', 'content': '3'},
    ]
    for name in ('llama3_1', 'qwen2'):
      self.assert_like_transformers(name, old, normal)

  @parameterized.parameters('llama2', 'mistral')
  def test_unsupported_roles_are_refused(self, name):
    self.assert_refused(
      'messages',
      rf'{name}.jinja does not accept these messages: line \d+: .*oles must',
      _template(name),
      [_user('a'), _user('b')],
    )

  @parameterized.parameters(*_OWN)
  def test_templates_of_the_gateway_have_the_same_form(self, name):
    template = templates.TEMPLATES[name]
    for messages, normal in _RENDERED.values():
      self.assertEqual(
        _prompt(template, messages), template.render(normal), messages
      )
    for message in (_RESULT, {'role': 'function', 'content': 'x'}):
      self.assert_refused(
        'messages[0].role',
        'has no (tool|function) messages',
        template,
        [message],
      )


if __name__ == '__main__':
  absltest.main()
