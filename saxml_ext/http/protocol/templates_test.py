"""Tests chat templates and the defaults of models."""

import json
import pathlib

from absl.testing import absltest
from absl.testing import parameterized

from saxml_ext.common import errors
from saxml_ext.http.protocol import checkpoint_templates
from saxml_ext.http.protocol import problems
from saxml_ext.http.protocol import templates

_MESSAGES = [
  {'role': 'system', 'content': 'Be brief.'},
  {'role': 'user', 'content': 'Hi'},
  {'role': 'assistant', 'content': 'Hello.'},
  {'role': 'user', 'content': 'Bye'},
]


class TemplatesTest(parameterized.TestCase):
  @parameterized.parameters(
    ('bare', 'Be brief.HiHello.Bye'),
    ('plain', 'Be brief.\n\nHi\n\nHello.\n\nBye'),
    (
      'dialogue',
      'Be brief.\n\nUser: Hi\nAssistant: Hello.\nUser: Bye\nAssistant:',
    ),
    (
      'chatml',
      '<|im_start|>system\nBe brief.<|im_end|>\n'
      '<|im_start|>user\nHi<|im_end|>\n'
      '<|im_start|>assistant\nHello.<|im_end|>\n'
      '<|im_start|>user\nBye<|im_end|>\n'
      '<|im_start|>assistant\n',
    ),
    (
      'llama-2',
      '[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\nHi [/INST] Hello. </s>'
      '<s>[INST] Bye [/INST]',
    ),
    (
      'alpaca',
      'Be brief.\n\n### Instruction:\nHi\n\n### Response:\nHello.\n\n'
      '### Instruction:\nBye\n\n### Response:\n',
    ),
  )
  def test_render(self, name, expected):
    template = templates.named(name, 'chat_template')
    self.assertEqual(template.render(_MESSAGES), expected)

  def test_single_prompt_is_unchanged_by_default(self):
    template = templates.named(templates.DEFAULT, 'chat_template')
    prompt = [{'role': 'user', 'content': ' Summarize:\n x '}]
    self.assertEqual(template.render(prompt), ' Summarize:\n x ')

  def test_accepted_texts_render_as_in_jinja(self):
    messages = [{'role': 'user', 'content': ' a\n'}, *_MESSAGES]
    for text, name in templates._ACCEPTED_TEXTS.items():
      jinja = checkpoint_templates.CheckpointTemplate(
        {'default': text}, {'bos_token': '<s>'}, 'sent'
      )
      expected = jinja.render(messages)
      got = templates.named(text, 'chat_template')
      self.assertIs(got, templates.TEMPLATES[name])
      self.assertEqual('<s>' + got.render(messages), expected)

  def test_unknown_template_is_refused(self):
    for name in ('', 'PLAIN', '../plain', '{{ 7 * 7 }}' * 20):
      with self.assertRaisesRegex(problems.BadRequest, 'chatml') as e:
        templates.named(name, 'chat_template')
      self.assertLess(len(e.exception.message), 300)


class GenerationConfigTest(absltest.TestCase):
  def write(self, text):
    directory = pathlib.Path(self.create_tempdir().full_path)
    (directory / 'generation_config.json').write_text(text)
    return directory

  def test_defaults(self):
    config = {
      'temperature': 0.6,
      'top_p': 0.9,
      'top_k': 20,
      'max_new_tokens': 64,
      'eos_token_id': [1, 2],
      'do_sample': True,
      'repetition_penalty': 1.05,
      'min_p': 0.0,
      'min_new_tokens': 2,
    }
    directory = self.write(json.dumps(config))
    for path in (directory, directory / 'generation_config.json'):
      defaults, ignored = templates.generation_config(str(path))
      self.assertEqual(
        defaults,
        {
          'temperature': 0.6,
          'top_p': 0.9,
          'top_k': 20,
          'max_tokens': 64,
          'min_tokens': 2,
        },
      )
      self.assertEqual(ignored, ['repetition_penalty=1.05'])

  def test_missing_values_have_no_default(self):
    directory = self.write('{"temperature": null, "bos_token_id": 1}')
    self.assertEqual(templates.generation_config(str(directory)), ({}, []))

  def test_values_without_effect_never_make_requests_fail(self):
    for config, defaults, ignored in (
      ({'top_k': -1}, {'top_k': 0}, []),
      ({'top_k': 0, 'top_p': 1.0}, {'top_k': 0, 'top_p': 1}, []),
      ({'top_p': 0.0, 'temperature': 0.7}, {'temperature': 0}, []),
      ({'temperature': 0.0}, {'temperature': 0}, []),
      ({'do_sample': False, 'temperature': 1.0}, {'temperature': 0}, []),
      ({'do_sample': True}, {'temperature': 1}, []),
      ({'max_length': 20, 'num_beams': 1, 'min_length': 0}, {}, []),
      ({'max_length': 4096}, {}, ['max_length=4096']),
      (
        {'num_beams': 4, 'no_repeat_ngram_size': 3, 'stop_strings': ['a']},
        {},
        ['num_beams=4', 'no_repeat_ngram_size=3', 'stop_strings=["a"]'],
      ),
      ({'eos_token_id': [1, 2], '_from_model_config': True}, {}, []),
      ({'repetition_penalty': 1.0, 'typical_p': 1.0, 'min_p': 0}, {}, []),
    ):
      directory = self.write(json.dumps(config))
      self.assertEqual(
        templates.generation_config(str(directory)), (defaults, ignored), config
      )

  def test_malformed(self):
    for text, expected in (
      ('{', 'cannot be read'),
      ('[]', 'not a JSON object'),
      ('{"temperature": "hot"}', 'json: temperature: "hot" is not a number'),
      ('{"temperature": -1}', 'temperature: -1 is not from 0 to'),
      ('{"max_new_tokens": 0}', 'max_tokens: 0'),
    ):
      directory = self.write(text)
      with self.assertRaisesRegex(errors.InvalidArgument, expected):
        templates.generation_config(str(directory))
    with self.assertRaisesRegex(errors.InvalidArgument, 'nowhere'):
      templates.generation_config('/nowhere')


class TemplateTest(absltest.TestCase):
  def test_unknown_name_is_refused(self):
    with self.assertRaisesRegex(errors.InvalidArgument, "'jinja' .* alpaca"):
      templates.find('jinja')

  def test_template_is_a_name_or_a_file(self):
    self.assertEqual(templates.find('alpaca').reserved[0][0], '#')
    path = self.create_tempfile('t.jinja', '{{ messages | length }}').full_path
    self.assertEqual(templates.find(path).render([{}, {}]), '2')


if __name__ == '__main__':
  absltest.main()
