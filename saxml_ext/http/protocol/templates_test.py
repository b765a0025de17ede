"""Tests of chat templates."""

from absl.testing import absltest
from absl.testing import parameterized

from saxml_ext.http.protocol import problems
from saxml_ext.http.protocol import templates

_MESSAGES = [
  templates.Message(templates.SYSTEM, 'Be brief.'),
  templates.Message(templates.USER, 'Hi'),
  templates.Message(templates.ASSISTANT, 'Hello.'),
  templates.Message(templates.USER, 'Bye'),
]


class TemplatesTest(parameterized.TestCase):
  @parameterized.parameters(
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

  def test_a_lone_prompt_stays_as_it_is_by_default(self):
    template = templates.named(templates.DEFAULT, 'chat_template')
    prompt = [templates.Message(templates.USER, ' Summarize:\n x ')]
    self.assertEqual(template.render(prompt), ' Summarize:\n x ')

  def test_no_other_is_known(self):
    for name in ('', 'PLAIN', '../plain', '{{ 7 * 7 }}' * 20):
      with self.assertRaisesRegex(problems.BadRequest, 'chatml') as e:
        templates.named(name, 'chat_template')
      self.assertLess(len(e.exception.message), 300)


if __name__ == '__main__':
  absltest.main()
