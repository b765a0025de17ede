"""Tests the chat templates of checkpoints."""

import json
import os
import pathlib
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import psutil
from transformers.utils import chat_template_utils

from saxml_ext.common import errors
from saxml_ext.http.protocol import checkpoint_templates
from saxml_ext.http.protocol import problems
from saxml_ext.http.protocol import template_pool

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

  def test_errors_name_the_line(self):
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

  def test_templates_run_in_a_sandbox(self):
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

  @parameterized.named_parameters(
    ('loop', '{% for i in R %}{% for j in R %}{% endfor %}{% endfor %}', '1 s'),
    (
      'memory',
      '{% set ns = namespace(x="a") %}'
      '{% for i in R %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}',
      '64 MiB of memory',
    ),
    ('constant', '{{ "a" * 10**9 }}', '64 MiB of memory'),
    ('output', '{% for i in R %}{{ "a" * 9999 }}{% endfor %}', '8388608 char'),
    ('recursion', '{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}', 'recurs'),
  )
  def test_limit_fails_only_one_request(self, source, expected):
    template = _made(source.replace('R', 'range(99999)'))
    # On a busy machine, templates may reach the limit of time first.
    secs = 1.0 if expected == '1 s' else 60.0
    with (
      mock.patch.object(template_pool, '_RENDER_SECS', secs),
      self.assertRaisesRegex(problems.BadRequest, expected) as e,
    ):
      template.render(_MESSAGES)
    self.assertEqual(e.exception.param, 'messages')
    # Another process takes the place of the one that was killed.
    self.assertIn('Hello.', _made(_CHAT).render(_MESSAGES))

  def test_limits_when_templates_are_loaded(self):
    with mock.patch.object(template_pool, '_LOAD_SECS', 0.1):
      with self.assertRaisesRegex(
        errors.InvalidArgument, 'takes more than 0.1'
      ):
        _made('x' * 20_000_000)
    with self.assertRaisesRegex(errors.InvalidArgument, 'nested too deeply'):
      _made('{{ ' + '(' * 5000 + '1' + ')' * 5000 + ' }}')

  def test_templates_see_no_variables_and_messages_of_errors_are_short(self):
    with mock.patch.dict(os.environ, {'HF_TOKEN': 'secret'}):
      _made('x').render(_MESSAGES)
    for child in psutil.Process().children():
      self.assertNotIn('HF_TOKEN', child.environ())
    with self.assertRaises(problems.BadRequest) as e:
      _made('{{ raise_exception("x" * 100000) }}').render(_MESSAGES)
    self.assertLess(len(e.exception.message), 1500)

  def test_a_process_needs_neither_jax_nor_grpc(self):
    _made('x').render(_MESSAGES)
    for child in psutil.Process().children():
      self.assertLess(child.memory_info().rss, 60 * 2**20)
      names = [m.path for m in child.memory_maps()]
      self.assertEmpty([n for n in names if 'jax' in n or 'grpc' in n])

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

  def test_files_that_are_not_regular(self):
    for name in ('chat_template.jinja', 'tokenizer_config.json'):
      directory = self.write(chat_template__jinja='x')
      (directory / name).unlink(missing_ok=True)
      os.mkfifo(directory / name)
      with self.assertRaisesRegex(errors.InvalidArgument, 'not a regular'):
        checkpoint_templates.load(str(directory))
    (directory / name).unlink()
    (directory / name).write_text('[' * 100_000)
    with self.assertRaisesRegex(errors.InvalidArgument, 'not valid JSON'):
      checkpoint_templates.load(str(directory))


if __name__ == '__main__':
  absltest.main()
