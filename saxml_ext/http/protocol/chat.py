"""Translates requests and answers of /v1/chat/completions."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Protocol, Self

import msgspec

from saxml_ext.http.protocol import answers
from saxml_ext.http.protocol import checkpoint_templates
from saxml_ext.http.protocol import fields
from saxml_ext.http.protocol import form
from saxml_ext.http.protocol import messages as messages_lib
from saxml_ext.http.protocol import sampling
from saxml_ext.http.protocol import templates
from saxml_ext.protobuf import completion_pb2

_MOST_MESSAGES = 4096
# The maximum depth of arrays and objects that templates get. Deep values take
# much more time to render than others of the same size.
_MOST_LEVELS = 64

Messages = Annotated[
  list[Any],
  msgspec.Meta(
    min_length=1,
    max_length=_MOST_MESSAGES,
    description='each with role and content',
    extra_json_schema={'items': {'type': 'object'}},
  ),
]
Tools = Annotated[
  Any, msgspec.Meta(description="shown to the model by a checkpoint's template")
]
ToolChoice = Annotated[
  Any, msgspec.Meta(extra_json_schema={'enum': ['auto', 'none', None]})
]
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
  tool_choice: Any


# Maps options of rendering to the only values that are accepted. They are fields
# of a request, and other servers accept them as variables of templates, too.
_RENDERING: dict[str, tuple[Any, ...]] = {
  'add_generation_prompt': (True,),
  'continue_final_message': (False,),
}
CONVERSATION_NEUTRAL = _RENDERING | {'echo': (False,)}


class Request(sampling.Sampling):
  """A request for chat completions."""

  NEUTRAL: ClassVar[Mapping[str, tuple[Any, ...]]] = CONVERSATION_NEUTRAL | {
    name: values
    for name, values in sampling.Sampling.NEUTRAL.items()
    if name not in ('tools', 'tool_choice')
  }
  RANGES: ClassVar[Mapping[str, tuple[float, float]]] = {
    **sampling.Sampling.RANGES,
    'top_logprobs': sampling.LOGPROBS,
  }
  ELSEWHERE: ClassVar[Mapping[str, str]] = {
    'prompt': 'this route answers messages. Send a prompt to /v1/completions'
  }

  messages: Messages
  chat_template: TemplateName | None = None
  chat_template_kwargs: Variables | None = None
  tools: Tools = None
  tool_choice: ToolChoice = None
  logprobs: bool = False
  top_logprobs: int | None = None


class ChatForm(form.Form):
  """A request for the next message of a conversation, and its format."""

  ID = 'chatcmpl'
  OBJECT = 'chat.completion'
  CHUNK = 'chat.completion.chunk'

  def choice(self, answer: answers.Answer, prompt: int) -> dict[str, Any]:
    message = {'role': 'assistant', 'content': answer.text, 'refusal': None}
    return self._shared(answer) | {'message': message}

  def deltas(
    self, delta: answers.Answer, prompt: int, offset: int | None
  ) -> list[dict[str, Any]]:
    content = {'content': delta.text} if delta.text else {}
    choice = self._shared(delta) | {'delta': content}
    if offset is not None:
      return [choice]
    first = super()._shared(answers.Answer(delta.index))
    return [first | {'delta': {'role': 'assistant', 'content': ''}}, choice]

  def _shared(self, answer: answers.Answer) -> dict[str, Any]:
    choice = super()._shared(answer) | self._ids(answer)
    if self.wants_logprobs:
      choice['logprobs'] = logprobs(answer.tokens)
    return choice

  @classmethod
  def from_request(
    cls, request: Request, profile_of: templates.ProfileOf
  ) -> Self:
    profile = profile_of(request.model)
    template, prompt = render(request, profile.template)
    settings = request.settings()
    if settings.pop('logprobs'):
      settings['logprobs'] = request.top_logprobs or 0
    elif request.top_logprobs:
      fields.fail('top_logprobs', 'it requires "logprobs": true')
    if not template.adds_start:
      settings.setdefault('add_special_tokens', False)
    settings['stop'] = [*settings['stop'], *template.stops]
    return cls(request, [prompt], settings, profile.defaults, request.logprobs)


def logprobs(
  tokens: Sequence[completion_pb2.Token],
) -> dict[str, list[dict[str, Any]]]:
  """Returns the log-probabilities of tokens in this format."""
  return {
    'content': [
      _piece(token)
      | {'top_logprobs': [_piece(other) for other in token.alternatives]}
      for token in tokens
    ]
  }


def _piece(
  piece: completion_pb2.Token | completion_pb2.Alternative,
) -> dict[str, Any]:
  return {
    'token': piece.text,
    'logprob': piece.logprob,
    'bytes': list(piece.utf8 or piece.text.encode()),
  }


def render(
  request: Conversation, template: templates.Template
) -> tuple[templates.Template, sampling.Text]:
  """Returns the template of a conversation and the rendered prompt.

  Args:
    request: The request, which may name another template.
    template: The model's template.

  Raises:
    problems.BadRequest: The template does not support the conversation.
  """
  if request.chat_template is not None:
    template = templates.named(request.chat_template, 'chat_template')
  tools = _tools(request)
  features = template.features(bool(tools))
  if tools and not features.has_tools:
    fields.fail(
      'tools',
      'the chat template of this model does not show tools to the model. Omit'
      ' them, or send "tool_choice": "none"',
    )
  messages = messages_lib.normalize(request.messages, features)
  variables = dict(_variables(request, template))
  for name, value in (
    ('messages', messages),
    ('tools', tools),
    ('chat_template_kwargs', variables),
  ):
    if fields.is_deeper(value, _MOST_LEVELS):
      fields.fail(
        name,
        f'its values are nested too deeply. The limit is {_MOST_LEVELS} levels',
      )
  return template, template.render(messages, tools, variables)


def _tools(request: Conversation) -> list[Any] | None:
  """Returns the tools that the template shows, or None."""
  tools, choice = request.tools, request.tool_choice
  if tools is not None and not isinstance(tools, list):
    fields.fail('tools', 'send an array')
  for i, tool in enumerate(tools or ()):
    if not isinstance(tool, dict):
      fields.fail(f'tools[{i}]', f'{fields.shown(tool)} is not an object')
  fields.check_neutral('tool_choice', choice, ('auto', 'none'))
  return None if choice == 'none' else tools or None


def _variables(
  request: Conversation, template: templates.Template
) -> Iterator[tuple[str, Any]]:
  """Yields the variables that a request sets for its template."""
  for name, value in (request.chat_template_kwargs or {}).items():
    where = f'chat_template_kwargs.{name}'
    if name in _RENDERING or not isinstance(
      template, checkpoint_templates.CheckpointTemplate
    ):
      # Switches of templates are usually off by default.
      fields.check_neutral(where, value, _RENDERING.get(name, (False,)))
    elif name in template.reserved_variables:
      fields.fail(where, 'requests cannot set this variable. Omit it')
    else:
      yield name, value
