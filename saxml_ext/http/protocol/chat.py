"""/v1/chat/completions: requests, and answers whole or as chunks."""

from collections.abc import Iterator, Sequence
import dataclasses
from typing import Any

from saxml_ext.http.protocol import checkpoint_templates
from saxml_ext.http.protocol import completions
from saxml_ext.http.protocol import fields as fields_lib
from saxml_ext.http.protocol import growing_answer as answers_lib
from saxml_ext.http.protocol import logprobs
from saxml_ext.http.protocol import model_profiles
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
    choice = completions.choice_head(answer, self.sampling) | {'logprobs': None}
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
        first = completions.choice_head(
          answers_lib.Answer(news.index), self._chat.sampling
        )
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


def parse(body: fields_lib.Body, profile_of: model_profiles.ProfileOf) -> Chat:
  """Reads a request.

  Raises:
    problems.BadRequest: a parameter does not fit, or cannot be honoured.
  """
  fields = fields_lib.of(body)
  model = fields.text('model')
  profile = profile_of(model)
  template, prompt = take_prompt(fields, profile.template)
  name = 'max_completion_tokens'
  if name not in fields or 'max_tokens' in fields:
    name = 'max_tokens'  # The older name.
  sampling = sampling_lib.take(fields, name, profile.defaults)
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
  fields: fields_lib.Fields, template: model_profiles.Template
) -> tuple[model_profiles.Template, str]:
  """Takes the conversation and writes it down.

  Args:
    fields: of the request, which may name another template.
    template: The model's.
  """
  chosen = fields.text('chat_template')
  if chosen is not None:
    template = templates.named(chosen, 'chat_template')
  fields.refuse_unless(
    {
      'add_generation_prompt': (True,),
      'continue_final_message': (False,),
      'echo': (False,),
    }
  )
  if isinstance(template, checkpoint_templates.CheckpointTemplate):
    return template, _render(fields, template)
  fields.refuse_unless({'chat_template_kwargs': ({},)})
  messages = _messages(fields, template.reserved)
  return template, template.render(messages)


def _render(
  fields: fields_lib.Fields, template: checkpoint_templates.CheckpointTemplate
) -> str:
  """Gives a checkpoint's template the messages and tools as they are."""
  messages = _list_of_messages(fields)
  for i, message in enumerate(messages):
    if not isinstance(message, dict) or not isinstance(
      message.get('role'), str
    ):
      fields.fail(f'messages[{i}]', 'send an object with a role')
    for text in _texts_in(message):
      _check_text(fields, f'messages[{i}]', text, template.reserved)
  tools = fields.raw('tools')
  if tools is not None and not isinstance(tools, list):
    fields.fail('tools', 'send an array')
  for text in _texts_in(tools):
    _check_text(fields, 'tools', text, template.reserved)
  variables = fields.raw('chat_template_kwargs') or {}
  if not isinstance(variables, dict):
    fields.fail('chat_template_kwargs', 'send an object')
  return template.render(messages, tools or None, variables)


def _texts_in(value: Any) -> Iterator[str]:
  """Yields all strings of a JSON value; without recursion, for deep ones."""
  left = [value]
  while left:
    item = left.pop()
    if isinstance(item, str):
      yield item
    elif isinstance(item, dict):
      left += [*item, *item.values()]
    elif isinstance(item, list):
      left += item


def _check_text(
  fields: fields_lib.Fields, name: str, text: str, reserved: Sequence[str]
) -> None:
  fields.check_text(name, text)
  for mark in reserved:
    if mark in text:
      fields.fail(
        name, f'it has {mark!r}, by which the chat template marks roles'
      )


def _list_of_messages(fields: fields_lib.Fields) -> list[Any]:
  value = fields.raw('messages')
  if not isinstance(value, list) or not value:
    fields.fail('messages', 'send an array of at least one message')
  if len(value) > _MOST_MESSAGES:
    fields.fail('messages', f'{len(value)} messages; limit {_MOST_MESSAGES}')
  return value


def _messages(
  fields: fields_lib.Fields, reserved: Sequence[str]
) -> list[templates.Message]:
  result = []
  for i, item in enumerate(_list_of_messages(fields)):
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
  _check_text(members, 'content', text, reserved)
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
    texts.append(part['text'])
  return ''.join(texts)
