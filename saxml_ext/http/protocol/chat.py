"""/v1/chat/completions: requests, and answers whole or as chunks."""

from collections.abc import Callable, Sequence
import dataclasses
from typing import Any

from saxml_ext.http.protocol import answers as answers_lib
from saxml_ext.http.protocol import completions
from saxml_ext.http.protocol import fields as fields_lib
from saxml_ext.http.protocol import logprobs
from saxml_ext.http.protocol import prompts as prompts_lib
from saxml_ext.http.protocol import sampling as sampling_lib
from saxml_ext.http.protocol import templates
from saxml_ext.protobuf import completion_pb2

_OBJECT = 'chat.completion'
_CHUNK = 'chat.completion.chunk'
_MOST_MESSAGES = 4096
_ROLES = {
  'system': templates.SYSTEM,
  'developer': templates.SYSTEM,
  'user': templates.USER,
  'assistant': templates.ASSISTANT,
}

# The name of a model, as the request has it -> the name of its template.
TemplateOf = Callable[[str | None], str]


@dataclasses.dataclass(frozen=True)
class Chat:
  """A request, and the form of its answer.

  Attributes:
    model: as the request names it; None if it names none.
    sampling: what it asks for.
    prompts: one, what the template made of the conversation.
    wants_logprobs: whether answers come with log-probabilities.
  """

  model: str | None
  sampling: sampling_lib.Sampling
  prompts: Sequence[prompts_lib.Prompt]
  wants_logprobs: bool

  def body(
    self, head: dict[str, Any], collected: Sequence[answers_lib.Collected]
  ) -> dict[str, Any]:
    """The whole answer; `head` has its id, time and model."""
    choices = [
      self._choice(answer)
      | {
        'message': {
          'role': 'assistant',
          'content': answer.text,
          'refusal': None,
        }
      }
      for answer in collected[0].best(self.sampling.n)
    ]
    usage = answers_lib.usage_of([part.usage for part in collected])
    return {**head, 'object': _OBJECT, 'choices': choices, 'usage': usage}

  def streams(self) -> 'Chunks':
    """What turns the cell's messages into chunks."""
    return Chunks(self)

  def _choice(self, answer: answers_lib.Answer) -> dict[str, Any]:
    choice = completions.choice_head(answer) | {'logprobs': None}
    if self.wants_logprobs:
      choice['logprobs'] = logprobs.of_chat(answer.tokens)
    if self.sampling.token_ids:
      choice['token_ids'] = [token.token_id for token in answer.tokens]
    return choice


class Chunks:
  """The chunks of an answer that is streamed: its role, text, and end."""

  def __init__(self, chat: Chat):
    self._chat = chat
    self._begun: set[int] = set()

  def chunks(
    self,
    head: dict[str, Any],
    prompt: int,
    response: completion_pb2.CompleteResponse,
  ) -> list[dict[str, Any]]:
    """The chunks that tell a message's news, one or two per answer."""
    del prompt  # There is one.
    result = []
    for choice in response.choices:
      news = answers_lib.of(choice, choice.index)
      if news.index not in self._begun:
        self._begun.add(news.index)
        first = completions.choice_head(answers_lib.Answer(news.index))
        first['delta'] = {'role': 'assistant', 'content': ''}
        result.append(self._chunk(head, first | {'logprobs': None}))
      delta = {'content': news.text} if news.text else {}
      result.append(
        self._chunk(head, self._chat._choice(news) | {'delta': delta})
      )
    return result

  def last(self, head: dict[str, Any], usage: dict[str, int]) -> dict[str, Any]:
    """The chunk that counts tokens."""
    return {**head, 'object': _CHUNK, 'choices': [], 'usage': usage}

  def _chunk(
    self, head: dict[str, Any], choice: dict[str, Any]
  ) -> dict[str, Any]:
    return {**head, 'object': _CHUNK, 'choices': [choice]}


def parse(body: dict[str, Any], template_of: TemplateOf) -> Chat:
  """Reads a request.

  Raises:
    problems.BadRequest: a parameter does not fit, or cannot be honoured.
  """
  fields = fields_lib.Fields(body)
  model = fields.text('model')
  template, prompt = take_prompt(fields, template_of(model))
  name = 'max_completion_tokens'
  if name not in fields or 'max_tokens' in fields:
    name = 'max_tokens'  # The older name.
  sampling = sampling_lib.take(fields, name)
  wants_logprobs = fields.flag('logprobs') or False
  alternatives = fields.integer('top_logprobs', 0)
  if alternatives is not None and not wants_logprobs:
    fields.fail('top_logprobs', 'send it with "logprobs": true only')
  fields.finish()
  if wants_logprobs:
    sampling.settings['logprobs'] = alternatives or 0
  sampling.settings['stop'] += template.stops
  return Chat(model, sampling, [prompt], wants_logprobs)


def take_prompt(
  fields: fields_lib.Fields, template_name: str
) -> tuple[templates.Template, str]:
  """Takes the conversation and writes it down.

  Args:
    fields: of the request, which may name another template.
    template_name: the model's.
  """
  chosen = fields.text('chat_template')
  template = templates.named(chosen or template_name, 'chat_template')
  fields.refuse_unless(
    {
      'add_generation_prompt': (True,),
      'chat_template_kwargs': ({},),
      'continue_final_message': (False,),
      'echo': (False,),
    }
  )
  messages = _messages(fields, template.reserved)
  return template, template.render(messages)


def _messages(
  fields: fields_lib.Fields, reserved: Sequence[str]
) -> list[templates.Message]:
  value = fields.raw('messages')
  if not isinstance(value, list) or not value:
    fields.fail('messages', 'send an array of at least one message')
  if len(value) > _MOST_MESSAGES:
    fields.fail('messages', f'{len(value)} messages; limit {_MOST_MESSAGES}')
  result = []
  for i, item in enumerate(value):
    if not isinstance(item, dict):
      fields.fail(f'messages[{i}]', f'send an object, no {_kind(item)}')
    members = fields_lib.Fields(item, f'messages[{i}].')
    result.append(_message(members, reserved))
  return result


def _kind(value: Any) -> str:
  return fields_lib.kind_of(value)


def _message(
  members: fields_lib.Fields, reserved: Sequence[str]
) -> templates.Message:
  role = members.text('role')
  if role not in _ROLES:
    members.fail('role', f'send one of {", ".join(_ROLES)}')
  text = _content(members)
  for mark in reserved:
    if mark in text:
      members.fail(
        'content', f'it has {mark!r}, by which the chat template marks roles'
      )
  members.take_harmless(('name',))
  members.refuse_unless(
    {
      'audio': (),
      'function_call': (),
      'reasoning_content': ('',),
      'refusal': ('',),
      'tool_call_id': (),
      'tool_calls': ([],),
    }
  )
  members.finish()
  return templates.Message(_ROLES[role], text)


def _content(members: fields_lib.Fields) -> str:
  value = members.raw('content')
  if isinstance(value, str):
    members.check_text('content', value)
    return value
  if not isinstance(value, list) or not value:
    members.fail('content', 'send a text, or an array of parts of text')
  texts = []
  for i, part in enumerate(value):
    name = f'content[{i}]'
    if not isinstance(part, dict) or part.get('type') != 'text':
      members.fail(name, 'send {"type": "text", "text": ...}; models read text')
    if not isinstance(part.get('text'), str):
      members.fail(name, 'its text is missing')
    members.check_text(name, part['text'])
    texts.append(part['text'])
  return ''.join(texts)
