"""Parses requests of /v1/chat/completions and formats their answers."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Protocol

import msgspec

from saxml_ext.http.protocol import answers
from saxml_ext.http.protocol import checkpoint_templates
from saxml_ext.http.protocol import completions
from saxml_ext.http.protocol import fields
from saxml_ext.http.protocol import sampling
from saxml_ext.http.protocol import templates

_MOST_MESSAGES = 4096

Messages = Annotated[
  list[Any],
  msgspec.Meta(
    min_length=1,
    max_length=_MOST_MESSAGES,
    description='each with role and content',
    extra_json_schema={'items': {'type': 'object'}},
  ),
]
# Only a checkpoint's template accepts values that have an effect.
Tools = Annotated[Any, msgspec.Meta(extra_json_schema={'enum': [[], None]})]
Variables = Annotated[
  dict[str, Any],
  msgspec.Meta(
    description="variables of a checkpoint's template; the gateway's own"
    ' templates accept only values without effect'
  ),
]
TemplateName = Annotated[
  str, msgspec.Meta(extra_json_schema={'enum': sorted(templates.TEMPLATES)})
]


class Conversation(Protocol):
  """The fields of a request that contains a conversation."""

  messages: Any
  chat_template: str | None
  chat_template_kwargs: dict[str, Any] | None
  tools: Any


# Maps fields of such a request to the only values that are accepted.
CONVERSATION_NEUTRAL: dict[str, tuple[Any, ...]] = {
  'add_generation_prompt': (True,),
  'continue_final_message': (False,),
  'echo': (False,),
}


# Maps variables of templates to the only values that the gateway's own templates
# accept. Other clients' defaults are among them.
_NEUTRAL_VARIABLES: dict[str, tuple[Any, ...]] = {
  'add_generation_prompt': (True,),
  'continue_final_message': (False,),
  'enable_thinking': (False,),
}


class Request(sampling.Sampling):
  """A request for chat completions."""

  NEUTRAL: ClassVar[Mapping[str, tuple[Any, ...]]] = CONVERSATION_NEUTRAL | {
    k: v for k, v in sampling.Sampling.NEUTRAL.items() if k != 'tools'
  }

  RANGES: ClassVar[Mapping[str, tuple[float, float]]] = {
    **sampling.Sampling.RANGES,
    'max_completion_tokens': sampling.Sampling.RANGES['max_tokens'],
    'top_logprobs': sampling.LOGPROBS,
  }

  messages: Messages
  chat_template: TemplateName | None = None
  chat_template_kwargs: Variables | None = None
  tools: Tools = None
  max_completion_tokens: int | None = None
  logprobs: bool = False
  top_logprobs: int | None = None


class _Part(msgspec.Struct):
  """A part of a message's content."""

  type: Literal['text']
  text: str


class _Message(fields.Request):
  """A message for one of the gateway's templates."""

  HARMLESS: ClassVar[tuple[str, ...]] = ('name',)
  NEUTRAL: ClassVar[Mapping[str, tuple[Any, ...]]] = {
    'audio': (),
    'function_call': (),
    'reasoning_content': ('',),
    'refusal': ('',),
    'tool_call_id': (),
    'tool_calls': ([],),
  }

  role: Literal['system', 'developer', 'user', 'assistant']
  content: str | Annotated[list[_Part], msgspec.Meta(min_length=1)]

  @property
  def text(self) -> str:
    """The content as a single text."""
    if isinstance(self.content, str):
      return self.content
    return ''.join(part.text for part in self.content)


class Chat(completions.Form):
  """A request for the next message of a conversation."""

  OBJECT = 'chat.completion'
  CHUNK = 'chat.completion.chunk'

  def _whole(self, answer: answers.Answer, prompt: int) -> dict[str, Any]:
    message = {'role': 'assistant', 'content': answer.text, 'refusal': None}
    return self._told(answer) | {'message': message}

  def parts(
    self, news: answers.Answer, prompt: int, offset: int | None
  ) -> list[dict[str, Any]]:
    delta = {'content': news.text} if news.text else {}
    choice = self._told(news) | {'delta': delta}
    if offset is not None:
      return [choice]
    first = self._choice(answers.Answer(news.index))
    return [first | {'delta': {'role': 'assistant', 'content': ''}}, choice]

  def _told(self, answer: answers.Answer) -> dict[str, Any]:
    choice = self._choice(answer) | self._ids(answer)
    if self.wants_logprobs:
      choice['logprobs'] = answers.chat_logprobs(answer.tokens)
    return choice


def form_of(request: Request, profile_of: templates.ProfileOf) -> Chat:
  """Returns the `Chat` of a request.

  Raises:
    problems.BadRequest: A parameter is invalid or not supported.
  """
  profile = profile_of(request.model)
  template, prompt = render(request, profile.template)
  if request.max_completion_tokens is not None:
    if request.max_tokens is not None:
      fields.fail('max_completion_tokens', 'send it or max_tokens, not both')
    # max_tokens is the older name.
    request.max_tokens = request.max_completion_tokens
  settings = request.settings(profile.defaults)
  if settings.pop('logprobs'):
    settings['logprobs'] = request.top_logprobs or 0
  elif request.top_logprobs is not None:
    fields.fail('top_logprobs', 'it requires "logprobs": true')
  if not template.adds_start:
    settings.setdefault('add_special_tokens', False)
  settings['stop'] = [*settings['stop'], *template.stops]
  default = None if request.max_tokens else profile.defaults.get('max_tokens')
  return Chat(request, [prompt], settings, default, request.logprobs)


def render(
  request: Conversation, template: templates.Template
) -> tuple[templates.Template, str]:
  """Returns the template of a conversation and the rendered prompt.

  Args:
    request: The request, which may name another template.
    template: The model's template.
  """
  if request.chat_template is not None:
    template = templates.named(request.chat_template, 'chat_template')
  if isinstance(template, checkpoint_templates.CheckpointTemplate):
    return template, _render_raw(request, template)
  fields.check_neutral('tools', request.tools, ([],))
  for name, value in (request.chat_template_kwargs or {}).items():
    fields.check_neutral(
      f'chat_template_kwargs.{name}', value, _NEUTRAL_VARIABLES.get(name, ())
    )
  messages = []
  for i, item in enumerate(request.messages):
    where = f'messages[{i}]'
    if not isinstance(item, dict):
      fields.fail(where, 'send an object')
    message = fields.read(item, _Message, f'{where}.')
    _check_marks(f'{where}.content', message.text, template.reserved)
    role = templates.SYSTEM if message.role == 'developer' else message.role
    messages.append(templates.Message(role, message.text))
  return template, template.render(messages)


def _render_raw(
  request: Conversation, template: checkpoint_templates.CheckpointTemplate
) -> str:
  """Renders the unchanged messages and tools with a checkpoint's template."""
  tools, variables = request.tools, request.chat_template_kwargs
  for i, message in enumerate(request.messages):
    role = message.get('role') if isinstance(message, dict) else None
    if not isinstance(role, str):
      fields.fail(f'messages[{i}]', 'send an object with a role')
    _check_marks(f'messages[{i}]', message, template.reserved)
  if tools is not None and not isinstance(tools, list):
    fields.fail('tools', 'send an array')
  _check_marks('tools', tools, template.reserved)
  return template.render(request.messages, tools or None, variables)


def _texts_in(value: Any) -> Iterator[str]:
  """Yields all strings of a JSON value.

  It uses no recursion, because values can be deeply nested.
  """
  left = [value]
  while left:
    item = left.pop()
    if isinstance(item, str):
      yield item
    elif isinstance(item, dict):
      left += [*item, *item.values()]
    elif isinstance(item, list):
      left += item


def _check_marks(name: str, value: Any, reserved: Sequence[str]) -> None:
  """Rejects a value with a text that the template uses to mark roles."""
  for text in _texts_in(value):
    for mark in reserved:
      if mark in text:
        fields.fail(
          name, f'it contains {mark!r}, which marks roles in the chat template'
        )
