"""Reads how requests to a model are read: its chat template, its defaults.

A chat template turns a conversation into a prompt. People choose one of the
gateway's by name. The template of a checkpoint is read only if a flag names its
file, see `checkpoint_templates`.
"""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import json
import pathlib
from typing import Any, NamedTuple, TypeAlias

from saxml_ext.common import errors
from saxml_ext.common import user_path
from saxml_ext.http.protocol import checkpoint_templates
from saxml_ext.http.protocol import fields
from saxml_ext.http.protocol import problems
from saxml_ext.http.protocol import sampling

SYSTEM, USER, ASSISTANT = 'system', 'user', 'assistant'


class Message(NamedTuple):
  """A part of a conversation.

  Attributes:
    role: SYSTEM, USER or ASSISTANT.
    text: The content.
  """

  role: str
  text: str


@dataclasses.dataclass(frozen=True)
class GatewayTemplate:
  """A template of the gateway.

  Attributes:
    render: Returns the prompt whose continuation is the assistant's next
      message.
    stops: Texts that end an answer.
    reserved: Texts that mark roles. A message that has one could speak for
      somebody else, and is refused.
  """

  render: Callable[[Sequence[Message]], str]
  stops: tuple[str, ...] = ()
  reserved: tuple[str, ...] = ()


def _dialogue(messages: Sequence[Message]) -> str:
  names = {USER: 'User: {}', ASSISTANT: 'Assistant: {}', SYSTEM: '{}\n'}
  lines = [names[message.role].format(message.text) for message in messages]
  return '\n'.join([*lines, 'Assistant:'])


def _chatml(messages: Sequence[Message]) -> str:
  parts = [f'<|im_start|>{m.role}\n{m.text}<|im_end|>\n' for m in messages]
  return ''.join([*parts, '<|im_start|>assistant\n'])


def _llama2(messages: Sequence[Message]) -> str:
  """Writes Llama 2's form; its first token is what the tokenizer adds."""
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


def _alpaca(messages: Sequence[Message]) -> str:
  names = {USER: 'Instruction', ASSISTANT: 'Response'}
  parts = [m.text for m in messages if m.role == SYSTEM] or [
    'Below is an instruction that describes a task. Write a response that'
    ' appropriately completes the request.'
  ]
  for message in messages:
    if message.role != SYSTEM:
      parts.append(f'### {names[message.role]}:\n{message.text}')
  return '\n\n'.join([*parts, '### Response:\n'])


TEMPLATES: Mapping[str, GatewayTemplate] = {
  # Stanford's, which many fine-tunes of GPT-J have.
  'alpaca': GatewayTemplate(
    _alpaca,
    ('\n### Instruction:', '\n\n### Response:'),
    ('### Instruction:', '### Response:'),
  ),
  # That of OpenAI's first chat models, Qwen and many others.
  'chatml': GatewayTemplate(
    _chatml, ('<|im_end|>',), ('<|im_start|>', '<|im_end|>')
  ),
  # A script, for models that were trained on text alone.
  'dialogue': GatewayTemplate(_dialogue, ('\nUser:',)),
  'llama-2': GatewayTemplate(
    _llama2,
    ('</s>',),
    ('[INST]', '[/INST]', '<<SYS>>', '<</SYS>>', '<s>', '</s>'),
  ),
  # The messages alone, for models that know no roles.
  'plain': GatewayTemplate(
    lambda messages: '\n\n'.join(m.text for m in messages)
  ),
}
DEFAULT = 'plain'

Template: TypeAlias = GatewayTemplate | checkpoint_templates.CheckpointTemplate

# Name in generation_config.json -> parameter of a request.
_DEFAULTS = {
  'max_new_tokens': 'max_tokens',
  'temperature': 'temperature',
  'top_k': 'top_k',
  'top_p': 'top_p',
}
# vLLM applies these too. Values that ask for something are reported.
_NOT_APPLIED = {'min_p': 0, 'repetition_penalty': 1}


@dataclasses.dataclass(frozen=True)
class Profile:
  """Describes how requests to a model are read.

  Attributes:
    template: The chat template of conversations without one of their own.
    defaults: The values of parameters that a request leaves out, by name.
  """

  template: Template = TEMPLATES[DEFAULT]
  defaults: Mapping[str, Any] = dataclasses.field(default_factory=dict)


# The name of a model, as the request has it -> how to read the request.
ProfileOf = Callable[[str | None], Profile]


def known() -> str:
  """Returns the names of all templates, for people."""
  return ', '.join(sorted(TEMPLATES))


def named(name: str, param: str) -> GatewayTemplate:
  """Returns a template of the allow-list.

  Raises:
    problems.BadRequest: There is none of that name.
  """
  if name not in TEMPLATES:
    shown = json.dumps(name if len(name) <= 40 else f'{name[:37]}...')
    raise problems.BadRequest(
      f'{param}: {shown} is none of the templates of this server, which are'
      f' {known()}; templates are chosen by name and cannot be sent',
      param=param,
    )
  return TEMPLATES[name]


def find(name: str) -> Template:
  """Returns the template of a name or of a path.

  Raises:
    errors.InvalidArgument: There is none.
  """
  if name in TEMPLATES:
    return TEMPLATES[name]
  path = user_path.resolve(name)
  if not pathlib.Path(path).exists():
    raise errors.InvalidArgument(
      f'{name!r} is neither a file nor one of {known()}.'
    )
  return checkpoint_templates.load(path)


def generation_config(path: str) -> tuple[dict[str, Any], list[str]]:
  """Reads the defaults of a Hugging Face generation_config.json.

  Args:
    path: The file, or its directory.

  Returns:
    The defaults by parameter, and the settings that cannot be applied here.

  Raises:
    errors.InvalidArgument: It cannot be read, or a value is malformed.
  """
  file = pathlib.Path(user_path.resolve(path))
  if file.is_dir():
    file = file / 'generation_config.json'
  try:
    found = json.loads(file.read_text(encoding='utf-8'))
  except (OSError, ValueError) as e:
    raise errors.InvalidArgument(
      f'{file} cannot be read as a generation_config.json: {e}'
    ) from e
  if not isinstance(found, dict):
    raise errors.InvalidArgument(f'{file} is not a JSON object.')
  defaults = {
    parameter: found[name]
    for name, parameter in _DEFAULTS.items()
    if found.get(name) is not None
  }
  try:
    fields.read(defaults, sampling.Sampling)
  except problems.BadRequest as e:
    raise errors.InvalidArgument(f'{file}: {e.message}') from e
  ignored = [
    f'{name}={found[name]}'
    for name, neutral in _NOT_APPLIED.items()
    if found.get(name) not in (None, neutral)
  ]
  return defaults, ignored
