"""Defines chat templates and the defaults of a model's requests.

A chat template turns a conversation into a prompt. Users choose one of the
gateway's templates by name. The template of a checkpoint is read only if a flag
names its file, see `checkpoint_templates`.
"""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import json
import pathlib
from typing import Any, ClassVar, NamedTuple, TypeAlias

from saxml_ext.common import errors
from saxml_ext.common import files
from saxml_ext.common import user_path
from saxml_ext.http.protocol import checkpoint_templates
from saxml_ext.http.protocol import fields
from saxml_ext.http.protocol import marks as marks_lib
from saxml_ext.http.protocol import messages as messages_lib
from saxml_ext.http.protocol import problems
from saxml_ext.http.protocol import sampling

SYSTEM, USER = messages_lib.SYSTEM, messages_lib.USER
ASSISTANT = messages_lib.ASSISTANT


class _Message(NamedTuple):
  """A message of a conversation.

  Attributes:
    role: The role: SYSTEM, USER or ASSISTANT.
    text: The content.
  """

  role: str
  text: str


@dataclasses.dataclass(frozen=True)
class GatewayTemplate:
  """A template of the gateway.

  Attributes:
    write: The function that returns the prompt, which the assistant's next
      message continues.
    stops: The texts that end an answer.
    reserved: The texts that mark roles. In messages, they are plain text to a
      tokenizer that has them as special tokens.
    adds_start: True, because prompts do not contain the model's start token.
  """

  adds_start: ClassVar[bool] = True
  write: Callable[[Sequence[_Message]], str]
  stops: tuple[str, ...] = ()
  reserved: tuple[str, ...] = ()

  @property
  def is_chat(self) -> bool:
    """True if a model needs training on conversations for this template."""
    return bool(self.reserved)

  def features(self, has_tools: bool) -> messages_lib.Features:
    """Returns the features, which do not depend on the tools of a request."""
    del has_tools
    return messages_lib.Features()

  def render(
    self,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Any] | None = None,
    variables: Mapping[str, Any] | None = None,
  ) -> sampling.Text:
    """Returns the prompt of a conversation; there are no tools or variables.

    Special tokens in the messages become literal segments of the prompt.

    Raises:
      problems.BadRequest: A message has a role that the template lacks.
    """
    del tools, variables
    for i, message in enumerate(messages):
      if message['role'] not in (SYSTEM, USER, ASSISTANT):
        fields.fail(
          f'messages[{i}].role',
          f'the chat template has no {message["role"]} messages. Send the text'
          ' as a user message, or serve the model with a template that has them',
        )
    marks = marks_lib.Marks(self.reserved)
    return marks.prompt(
      self.write(
        [_Message(m['role'], marks.hide(m['content'])) for m in messages]
      )
    )


def _dialogue(messages: Sequence[_Message]) -> str:
  names = {USER: 'User: {}', ASSISTANT: 'Assistant: {}', SYSTEM: '{}\n'}
  lines = [names[message.role].format(message.text) for message in messages]
  return '\n'.join([*lines, 'Assistant:'])


def _chatml(messages: Sequence[_Message]) -> str:
  parts = [f'<|im_start|>{m.role}\n{m.text}<|im_end|>\n' for m in messages]
  return ''.join([*parts, '<|im_start|>assistant\n'])


def _llama2(messages: Sequence[_Message]) -> str:
  """Returns a prompt in Llama 2's format, without its first token.

  The tokenizer adds the first token.
  """
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


def _alpaca(messages: Sequence[_Message]) -> str:
  names = {USER: 'Instruction', ASSISTANT: 'Response'}
  parts = [m.text for m in messages if m.role == SYSTEM] or [
    'Below is an instruction that describes a task. Write a response that'
    ' appropriately completes the request.'
  ]
  for message in messages:
    if message.role != SYSTEM:
      parts.append(f'### {names[message.role]}:\n{message.text}')
  return '\n\n'.join([*parts, '### Response:\n'])


def _bare(messages: Sequence[_Message]) -> str:
  return ''.join(message.text.strip() for message in messages)


TEMPLATES: Mapping[str, GatewayTemplate] = {
  # Stanford's format, which many fine-tuned versions of GPT-J use.
  'alpaca': GatewayTemplate(
    _alpaca,
    ('\n### Instruction:', '\n\n### Response:'),
    ('### Instruction:', '### Response:'),
  ),
  # The trimmed messages without separators: MLPerf's prompts of Llama 3.1.
  'bare': GatewayTemplate(_bare),
  # The format of OpenAI's first chat models, of Qwen and of many others.
  'chatml': GatewayTemplate(
    _chatml, ('<|im_end|>',), ('<|im_start|>', '<|im_end|>')
  ),
  # A script, for models that were trained only on text.
  'dialogue': GatewayTemplate(_dialogue, ('\nUser:',)),
  'llama-2': GatewayTemplate(
    _llama2,
    ('</s>',),
    ('[INST]', '[/INST]', '<<SYS>>', '<</SYS>>', '<s>', '</s>'),
  ),
  # Only the messages, for models that know no roles.
  'plain': GatewayTemplate(
    lambda messages: '\n\n'.join(m.text for m in messages)
  ),
}
DEFAULT = 'plain'

# The Jinja texts that a request may send as `chat_template`. The template of the
# name renders the same prompt; the text itself is never executed.
_ACCEPTED_TEXTS: Mapping[str, str] = {
  # MLCommons' client sends it with its preset cnn_dailymail::llama3_8b.
  '{{- bos_token }}{%- for message in messages %}'
  "{{ message['content'] | trim }}{%- endfor %}": 'bare'
}

Template: TypeAlias = GatewayTemplate | checkpoint_templates.CheckpointTemplate

# The largest generation_config.json.
_MOST_CONFIG_BYTES = 2**20
# Maps names in generation_config.json to parameters of a request.
_DEFAULTS = {
  'max_new_tokens': 'max_tokens',
  'min_new_tokens': 'min_tokens',
  'temperature': 'temperature',
  'top_k': 'top_k',
  'top_p': 'top_p',
}
# Settings without an effect on an answer, or which the model server reads.
_NO_EFFECT = frozenset(
  '_from_model_config bos_token_id cache_config cache_implementation chat_format'
  ' decoder_start_token_id disable_compile do_sample early_stopping eos_token_id'
  ' length_penalty low_memory output_attentions output_hidden_states'
  ' output_logits output_scores pad_token_id remove_invalid_values'
  ' renormalize_logits return_dict_in_generate return_legacy_cache'
  ' transformers_version use_cache'.split()
)
# Maps other settings to the value that has no effect, if it is not 0.
_NEUTRAL = {'max_length': 20} | dict.fromkeys(
  'encoder_repetition_penalty guidance_scale num_assistant_tokens'
  ' num_beam_groups num_beams num_return_sequences repetition_penalty'
  ' typical_p'.split(),
  1,
)


@dataclasses.dataclass(frozen=True)
class Profile:
  """A description of how to interpret requests to a model.

  Attributes:
    template: The chat template of conversations that name none.
    defaults: The values of parameters that a request leaves out, by name.
  """

  template: Template = TEMPLATES[DEFAULT]
  defaults: Mapping[str, Any] = dataclasses.field(default_factory=dict)


# A function from the name of a model in a request to the model's profile.
ProfileOf = Callable[[str | None], Profile]


def known() -> str:
  """Returns the names of all templates, for messages."""
  return ', '.join(sorted(TEMPLATES))


def named(name: str, param: str) -> GatewayTemplate:
  """Returns one of the gateway's templates.

  Args:
    name: The name, or a Jinja text that one of the templates stands for.
    param: The parameter of the request, for error messages.

  Raises:
    problems.BadRequest: There is no template of this name.
  """
  name = _ACCEPTED_TEXTS.get(name, name)
  if name not in TEMPLATES:
    shown = json.dumps(name if len(name) <= 40 else f'{name[:37]}...')
    raise problems.BadRequest(
      f'{param}: {shown} is not a template of this server. Available:'
      f' {known()}. A template cannot be sent',
      param=param,
    )
  return TEMPLATES[name]


def find(name: str) -> Template:
  """Returns the template with a name or at a path.

  Raises:
    errors.InvalidArgument: There is no such template.
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
  """Loads the defaults from a Hugging Face generation_config.json.

  Args:
    path: The path of the file, or of its directory.

  Returns:
    The results of `generation_defaults`.

  Raises:
    errors.InvalidArgument: The file cannot be read, or a value is malformed.
  """
  file = pathlib.Path(user_path.resolve(path))
  if file.is_dir():
    file = file / 'generation_config.json'
  try:
    data = files.read_file(file, _MOST_CONFIG_BYTES)
  except OSError as e:
    raise errors.InvalidArgument(
      f'{file} cannot be read as a generation_config.json: {e}'
    ) from e
  return generation_defaults(data, str(file))


def generation_defaults(
  data: bytes, file: str
) -> tuple[dict[str, Any], list[str]]:
  """Returns the defaults in the contents of a generation_config.json.

  Args:
    data: The contents.
    file: The path of the file, for messages.

  Returns:
    The defaults by parameter, and the settings that have no effect here, each
    as "name=value". No default makes a valid request fail.

  Raises:
    errors.InvalidArgument: A value is malformed.
  """
  try:
    config = json.loads(data)
  except (ValueError, RecursionError) as e:
    raise errors.InvalidArgument(
      f'{file} cannot be read as a generation_config.json: {e}'
    ) from e
  if not isinstance(config, dict):
    raise errors.InvalidArgument(f'{file} is not a JSON object.')
  defaults = {
    parameter: config[name]
    for name, parameter in _DEFAULTS.items()
    if config.get(name) is not None
  }
  if config.get('do_sample') is True:
    # This is the default of transformers.
    defaults.setdefault('temperature', 1.0)
  is_greedy = config.get('do_sample') is False
  if (top_p := defaults.get('top_p')) == 0 and not isinstance(top_p, bool):
    # No token is likely enough, so transformers keeps only the likeliest.
    del defaults['top_p']
    is_greedy = True
  if is_greedy:
    defaults['temperature'] = 0
  try:
    checked = fields.read(defaults, sampling.Sampling)
  except problems.BadRequest as e:
    raise errors.InvalidArgument(f'{file}: {e.message}') from e
  settings = checked.settings()
  ignored = [
    f'{name}={json.dumps(value)}'
    for name, value in config.items()
    if name not in _NO_EFFECT | _DEFAULTS.keys()
    and value not in (None, False, [], {}, _NEUTRAL.get(name, 0))
  ]
  return {name: settings[name] for name in defaults}, ignored
