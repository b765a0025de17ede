"""Tests the chat templates of checkpoints."""

import json
import os
import pathlib

from absl.testing import absltest
from absl.testing import parameterized
from transformers.utils import chat_template_utils

from saxml_ext.common import errors
from saxml_ext.http.protocol import checkpoint_templates
from saxml_ext.http.protocol import problems

# The templates use common features of checkpoint templates: whitespace control,
# loop controls, type tests, tools as JSON, macros, and {% generation %}.
_CHAT = """\
{{- bos_token }}
{%- if tools %}
  [{{ tools | tojson(indent=2) }}]
{%- endif %}
{% for message in messages %}
  {%- if message['role'] == 'ping' %}{% continue %}{% endif %}
  {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
    {{- raise_exception('Roles must alternate: ' + message.role) }}
  {%- endif %}
  {%- if message['content'] is string %}
<|{{ message.role }}|>{{ message['content'] | trim }}{{ eos_token }}
  {%- else %}
<|{{ message.role }}|>{{ message['content'] | map(attribute='text') | join }}
  {%- endif %}
{% endfor %}
{% if add_generation_prompt %}<|assistant|>{% endif %}
"""
_MACRO = """\
{% macro say(who, what) -%}{{ who }}: {{ what }}{%- endmacro %}
{% set ns = namespace(count=0) %}
{% for m in messages %}
{% set ns.count = ns.count + 1 %}
{% generation %}{{ say(m.role, m.content) }}{% endgeneration %}

{% endfor %}
{{ ns.count }} {{ thinking | default('off') }} {{ '<b>' | tojson }}
"""
_MESSAGES = [
  {'role': 'user', 'content': ' Hi & "bye" \u00fc '},
  {'role': 'assistant', 'content': 'Hello.', 'tool_calls': None},
  {'role': 'user', 'content': [{'type': 'text', 'text': 'More'}]},
]
_TOOLS = [{'type': 'function', 'function': {'name': 'f', 'parameters': {}}}]
_TOKENS = {'bos_token': '<s>', 'eos_token': '</s>'}


def _made(source, tokens=None):
  return checkpoint_templates.CheckpointTemplate(
    {'default': source}, tokens or _TOKENS, 'chat_template.jinja'
  )


class CheckpointTemplatesTest(parameterized.TestCase):
  @parameterized.named_parameters(
    ('chat', _CHAT, None, {}),
    ('chat_with_tools', _CHAT, _TOOLS, {}),
    ('macro', _MACRO, None, {}),
    ('macro_with_variable', _MACRO, None, {'thinking': 1}),
  )
  def test_renders_like_transformers(self, source, tools, variables):
    without_none = [
      {k: v for k, v in m.items() if v is not None} for m in _MESSAGES
    ]
    [expected], _ = chat_template_utils.render_jinja_template(
      [without_none],
      tools=tools,
      chat_template=source,
      add_generation_prompt=True,
      **_TOKENS,
      **variables,
    )
    got = _made(source).render(_MESSAGES, tools, variables)
    self.assertEqual(got, expected)
    self.assertIn('Hello.', got)

  def test_names_the_line_that_fails(self):
    two = [{'role': 'user', 'content': 'a'}, {'role': 'user', 'content': 'b'}]
    with self.assertRaisesRegex(
      problems.BadRequest, r'chat_template\.jinja .* line 8: Roles must'
    ) as e:
      _made(_CHAT).render(two)
    self.assertEqual(e.exception.param, 'messages')
    with self.assertRaisesRegex(problems.BadRequest, 'line 2: '):
      _made('\n{{ messages[0].content + 1 }}').render(_MESSAGES)
    with self.assertRaisesRegex(errors.InvalidArgument, 'line 3: '):
      _made('\n\n{% for %}')

  def test_is_a_sandbox(self):
    canary = os.path.join(self.create_tempdir().full_path, 'canary')
    for attack in (
      "{{ ''.__class__.__mro__[1].__subclasses__()[0].x }}",
      f"{{{{ lipsum.__globals__.__builtins__.open('{canary}', 'w') }}}}",
      f"{{{{ cycler.__init__.__globals__.os.mkdir('{canary}') }}}}",
      "{{ messages.append('x') }}",
      '{% for i in range(10**9) %}{% endfor %}',
    ):
      with self.assertRaises(problems.BadRequest, msg=attack):
        _made(attack).render(_MESSAGES)
    self.assertFalse(os.path.exists(canary))

  def write(self, **files):
    directory = pathlib.Path(self.create_tempdir().full_path)
    for name, value in files.items():
      text = value if isinstance(value, str) else json.dumps(value)
      (directory / name.replace('__', '.')).write_text(text)
    return directory

  def test_files(self):
    source = '{{ bos_token }}{{ messages[0].content }}{{ eos_token }}'
    directory = self.write(
      tokenizer_config__json={
        'bos_token': {'content': '<s>', 'lstrip': False},
        'chat_template': source + '!',
        'added_tokens_decoder': {
          '7': {'content': '<|sep|>', 'special': True},
          '8': {'content': 'word', 'special': False},
        },
      },
      special_tokens_map__json={'bos_token': 'old', 'eos_token': '</s>'},
      chat_template__jinja=source,
    )
    messages = [{'role': 'user', 'content': 'x'}]
    for name, expected in (
      ('', '<s>x</s>'),
      ('chat_template.jinja', '<s>x</s>'),
      ('tokenizer_config.json', '<s>x</s>!'),
    ):
      template = checkpoint_templates.load(str(directory / name))
      self.assertEqual(template.render(messages), expected)
      self.assertCountEqual(template.reserved, ['<s>', '</s>', '<|sep|>'])
    (directory / 'chat_template.jinja').unlink()
    template = checkpoint_templates.load(str(directory))
    self.assertEqual(template.render(messages), '<s>x</s>!')

  def test_several_templates(self):
    both = [
      {'name': 'default', 'template': 'plain'},
      {'name': 'tool_use', 'template': 'with tools'},
    ]
    directory = self.write(tokenizer_config__json={'chat_template': both})
    template = checkpoint_templates.load(str(directory))
    self.assertEqual(template.render(_MESSAGES), 'plain')
    self.assertEqual(template.render(_MESSAGES, _TOOLS), 'with tools')

  def test_files_without_a_template(self):
    for config, expected in (
      ({'bos_token': '<s>'}, 'has no chat_template'),
      ({'chat_template': [{'name': 'rag', 'template': ''}]}, 'no chat_templ'),
      ({'chat_template': 5}, 'neither'),
      ('{', 'not valid JSON'),
      ('[]', 'not a JSON object'),
    ):
      directory = self.write(tokenizer_config__json=config)
      with self.assertRaisesRegex(errors.InvalidArgument, expected):
        checkpoint_templates.load(str(directory))
    with self.assertRaisesRegex(errors.InvalidArgument, 'cannot be read'):
      checkpoint_templates.load('/nowhere/chat_template.jinja')


if __name__ == '__main__':
  absltest.main()
