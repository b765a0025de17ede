"""Chat templates of the gateway: how a conversation becomes a prompt.

People choose one by name. The templates that checkpoints bring are read where
the operator names their file, see `checkpoint_templates`.
"""

import abc
from collections.abc import Mapping, Sequence
import dataclasses
import json

from saxml_ext.http.protocol import problems

SYSTEM, USER, ASSISTANT = 'system', 'user', 'assistant'


@dataclasses.dataclass(frozen=True)
class Message:
  """A part of a conversation.

  Attributes:
    role: SYSTEM, USER or ASSISTANT.
    text: what was said.
  """

  role: str
  text: str


class Template(abc.ABC):
  """Writes conversations down.

  Attributes:
    stops: texts that end an answer.
    reserved: texts that mark roles. A message that has one could speak for
      somebody else, and is refused.
  """

  stops: tuple[str, ...] = ()
  reserved: tuple[str, ...] = ()

  @abc.abstractmethod
  def render(self, messages: Sequence[Message]) -> str:
    """The prompt whose continuation is the assistant's next message."""


class _Plain(Template):
  """Nothing but what was said, for models that know no roles."""

  def render(self, messages: Sequence[Message]) -> str:
    return '\n\n'.join(message.text for message in messages)


class _Dialogue(Template):
  """A conversation as a script has it, for models trained on text alone."""

  _NAMES = {USER: 'User', ASSISTANT: 'Assistant'}
  stops = ('\nUser:',)

  def render(self, messages: Sequence[Message]) -> str:
    lines = []
    for message in messages:
      name = self._NAMES.get(message.role)
      lines.append(f'{name}: {message.text}' if name else f'{message.text}\n')
    return '\n'.join([*lines, 'Assistant:'])


class _ChatML(Template):
  """ChatML, of OpenAI's first chat models, Qwen and many others."""

  stops = ('<|im_end|>',)
  reserved = ('<|im_start|>', '<|im_end|>')

  def render(self, messages: Sequence[Message]) -> str:
    told = (f'<|im_start|>{m.role}\n{m.text}<|im_end|>\n' for m in messages)
    return ''.join([*told, '<|im_start|>assistant\n'])


class _Llama2(Template):
  """That of Llama 2 Chat; its first token is what the tokenizer adds."""

  stops = ('</s>',)
  reserved = ('[INST]', '[/INST]', '<<SYS>>', '<</SYS>>', '<s>', '</s>')

  def render(self, messages: Sequence[Message]) -> str:
    prompt, pending = '', ''
    for message in messages:
      if message.role == SYSTEM:
        pending += f'<<SYS>>\n{message.text}\n<</SYS>>\n\n'
      elif message.role == USER:
        opened = '<s>' if prompt else ''
        prompt += f'{opened}[INST] {pending}{message.text} [/INST]'
        pending = ''
      else:
        prompt += f' {message.text} </s>'
    return prompt


class _Alpaca(Template):
  """That of Stanford's Alpaca, which many fine-tunes of GPT-J have."""

  _NAMES = {USER: 'Instruction', ASSISTANT: 'Response'}
  _INTRODUCTION = (
    'Below is an instruction that describes a task. Write a response that'
    ' appropriately completes the request.'
  )
  stops = ('\n### Instruction:', '\n\n### Response:')
  reserved = ('### Instruction:', '### Response:')

  def render(self, messages: Sequence[Message]) -> str:
    system = [m.text for m in messages if m.role == SYSTEM]
    parts = system or [self._INTRODUCTION]
    for message in messages:
      if message.role != SYSTEM:
        parts.append(f'### {self._NAMES[message.role]}:\n{message.text}')
    return '\n\n'.join([*parts, '### Response:\n'])


TEMPLATES: Mapping[str, Template] = {
  'alpaca': _Alpaca(),
  'chatml': _ChatML(),
  'dialogue': _Dialogue(),
  'llama-2': _Llama2(),
  'plain': _Plain(),
}
DEFAULT = 'plain'


def known() -> str:
  """The names of all templates, for people."""
  return ', '.join(sorted(TEMPLATES))


def named(name: str, param: str) -> Template:
  """A template of the allow-list.

  Raises:
    problems.BadRequest: there is none of that name.
  """
  if name not in TEMPLATES:
    shown = json.dumps(name if len(name) <= 40 else f'{name[:37]}...')
    raise problems.BadRequest(
      f'{param}: {shown} is none of the templates of this server, which are'
      f' {known()}; templates are chosen by name and cannot be sent',
      param=param,
    )
  return TEMPLATES[name]
