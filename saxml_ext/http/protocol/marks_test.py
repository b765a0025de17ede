"""Tests that special tokens in requests are literal text in prompts."""

import json
import pathlib

from absl.testing import absltest
from absl.testing import parameterized

from saxml_ext.http.protocol import chat
from saxml_ext.http.protocol import checkpoint_templates
from saxml_ext.http.protocol import fields
from saxml_ext.http.protocol import marks as marks_lib
from saxml_ext.http.protocol import problems
from saxml_ext.http.protocol import templates

_DIRECTORY = pathlib.Path(chat.__file__).parents[1] / 'testing/chat_templates'
_TOKENS = {'bos_token': '<s>', 'eos_token': '</s>', 'added_token_9': '[INST]'}


def _user(content):
  return {'role': 'user', 'content': content}


def _calling(arguments):
  function = {'name': 'add', 'arguments': json.dumps(arguments)}
  call = {'id': 'call12345', 'type': 'function', 'function': function}
  return {'role': 'assistant', 'content': None, 'tool_calls': [call]}


def _template(name):
  source = (_DIRECTORY / f'{name}.jinja').read_text('utf-8')
  return checkpoint_templates.CheckpointTemplate(
    {'default': source}, _TOKENS, f'{name}.jinja'
  )


def _prompt(template, messages, members):
  request = fields.read({'messages': messages, **members}, chat.Request)
  return chat.render(request, template)[1]


class MarksTest(parameterized.TestCase):
  @parameterized.product(
    mark=('<s>', '</s>', '[INST]', '<|im_end|>', '<|x|>', '<\uff5cx\uff5c>'),
    make=(
      lambda text: ([_user(text)], {}),
      lambda text: ([_user([{'type': 'text', 'text': text}])], {}),
      lambda text: ([_user('x'), _calling({'a': text}), _user('y')], {}),
      lambda text: ([_user('x'), _calling({text: 1}), _user('y')], {}),
      lambda text: ([_user('x')], {'tools': [{'function': {'name': text}}]}),
    ),
  )
  def test_special_tokens_in_messages_are_literal(self, mark, make):
    template = _template('qwen2')
    prompt = _prompt(template, *make(f' a{mark}{mark[0]}{mark} 1 '))
    self.assertEqual({s.text for s in prompt.segments if s.literal}, {mark})
    # The rest is what the template makes of other texts.
    self.assertEqual(
      ''.join('Q' if s.literal else s.text for s in prompt.segments),
      _prompt(template, *make(f' aQ{mark[0]}Q 1 ')),
    )

  def test_special_tokens_in_variables_are_literal(self):
    variables = {'chat_template_kwargs': {'date_string': '<|eot_id|>'}}
    prompt = _prompt(_template('llama3_1'), [_user('x')], variables)
    literal = [s.text for s in prompt.segments if s.literal]
    self.assertEqual(literal, ['<|eot_id|>'])

  def test_split_special_tokens_do_not_join(self):
    parts = [{'type': 'text', 'text': text} for text in ('<|im_', 'end|>')]
    prompt = _prompt(_template('qwen2'), [_user(parts)], {})
    self.assertIn('<|im_\nend|>', prompt)
    prompt = _prompt(_template('qwen2'), [_user('<|im_<|im_end|>end|>')], {})
    self.assertEqual(
      [s.text for s in prompt.segments if s.literal], ['<|im_end|>']
    )

  def test_templates_of_the_gateway_accept_their_own_marks(self):
    for name, template in templates.TEMPLATES.items():
      for mark in template.reserved:
        prompt = _prompt(template, [_user(f'a {mark} b')], {})
        literal = [s.text for s in prompt.segments if s.literal]
        self.assertEqual(literal, [mark], name)

  def test_prompts_without_special_tokens_are_texts(self):
    for text in ('x', 'a < b > c', '<b>[1]</b>', '<|', '0' * 100):
      prompt = _prompt(_template('chatml'), [_user(text)], {})
      self.assertIsInstance(prompt, str)
      self.assertIn(text, prompt)

  def test_usual_special_tokens_need_no_file(self):
    marks = marks_lib.Marks([])
    for mark in ('</s>', '<|eot_id|>', '<end_of_turn>', '[/INST]', '<eos>'):
      [_, literal, _] = marks.prompt(marks.hide(f'a{mark}b')).segments
      self.assertEqual((literal.text, literal.literal), (mark, True))

  def test_templates_that_drop_or_change_texts(self):
    marks = marks_lib.Marks(['<s>'])
    hidden = marks.hide('a<s>')
    self.assertEqual(marks.prompt('b'), 'b')
    [before, literal, after] = marks.prompt(f'{hidden.upper()}!').segments
    self.assertEqual((before.text, literal.text, after.text), ('A', '<s>', '!'))

  def test_deep_values_are_refused(self):
    value = '<s>'
    for _ in range(65):
      value = [value]
    for messages, members in (
      ([_user('x')], {'tools': [{'a': value}]}),
      ([_user('x')], {'chat_template_kwargs': {'a': value}}),
      ([_user('x'), _calling({'a': value}), _user('y')], {}),
    ):
      with self.assertRaisesRegex(problems.BadRequest, 'limit is 64 levels'):
        _prompt(_template('qwen2'), messages, members)


class ReservedTest(absltest.TestCase):
  def test_all_files_of_a_tokenizer_are_read(self):
    directory = pathlib.Path(self.create_tempdir().full_path)
    (directory / 'chat_template.jinja').write_text('x')
    for name, value in (
      ('special_tokens_map', {'additional_special_tokens': ['[A]']}),
      ('tokenizer_config', {'extra_special_tokens': {'b': '[B]'}}),
      ('added_tokens', {'[C]': 9}),
      (
        'tokenizer',
        {
          'added_tokens': [
            {'content': '[D]', 'special': True},
            {'content': 'word', 'special': False},
          ]
        },
      ),
    ):
      (directory / f'{name}.json').write_text(json.dumps(value))
    self.assertCountEqual(
      checkpoint_templates.load(str(directory)).reserved,
      ['[A]', '[B]', '[C]', '[D]'],
    )


if __name__ == '__main__':
  absltest.main()
