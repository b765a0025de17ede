"""Brings the messages of a conversation into one form for all chat templates.

In this form, a message has a role and a text as `content`. It may also have a
`name`, a `tool_call_id`, and `tool_calls` whose arguments are objects. Other
members are left out, because they are only meant for clients.
"""

from collections.abc import Iterator, Sequence
import dataclasses
from typing import Any

import msgspec

from saxml_ext.http.protocol import fields

SYSTEM, USER, ASSISTANT = 'system', 'user', 'assistant'
DEVELOPER, TOOL, FUNCTION = 'developer', 'tool', 'function'
_ROLES = (SYSTEM, DEVELOPER, USER, ASSISTANT, TOOL, FUNCTION)
# Maps types of parts with text to the member that has the text.
_TEXTS = {
  'text': 'text',
  'input_text': 'text',
  'output_text': 'text',
  'refusal': 'refusal',
}


@dataclasses.dataclass(frozen=True)
class Features:
  """The features of a chat template.

  Attributes:
    roles: The roles that it treats in a special way.
    has_tools: True if it shows the tools of a request to the model.
    has_tool_calls: True if it shows the earlier calls of tools to the model.
  """

  roles: frozenset[str] = frozenset()
  has_tools: bool = False
  has_tool_calls: bool = False


def normalize(
  messages: Sequence[Any], features: Features
) -> list[dict[str, Any]]:
  """Returns the messages in the form of this module.

  Args:
    messages: The messages of a request.
    features: The features of the template that renders them.

  Raises:
    problems.BadRequest: A message is malformed, or the template would lose a
      part of it.
  """
  return [
    dict(_members(message, f'messages[{i}]', features))
    for i, message in enumerate(messages)
  ]


def _members(
  message: Any, where: str, features: Features
) -> Iterator[tuple[str, Any]]:
  if not isinstance(message, dict):
    fields.fail(where, 'send an object')
  role = message.get('role')
  if not isinstance(role, str) or role not in {*_ROLES, *features.roles}:
    fields.fail(
      f'{where}.role', f'{fields.shown(role)} is not one of {", ".join(_ROLES)}'
    )
  yield 'role', _known_role(role, features)
  yield 'content', _content(message, role, where)
  for name in ('name', 'tool_call_id'):
    if (value := message.get(name)) is not None:
      yield name, _text(value, f'{where}.{name}')
  if message.get('audio') is not None:
    fields.fail(f'{where}.audio', 'this server reads only text. Omit it')
  if calls := _tool_calls(message, where):
    if not features.has_tool_calls:
      fields.fail(
        f'{where}.tool_calls',
        'the chat template of this model does not show calls of tools to the'
        ' model. Omit them, or choose another template with chat_template',
      )
    yield 'tool_calls', calls


def _known_role(role: str, features: Features) -> str:
  """Returns the role by which a template knows messages of a role."""
  if role == DEVELOPER and role not in features.roles:
    return SYSTEM  # OpenAI's newer name of the same role.
  if role == FUNCTION and role not in features.roles and TOOL in features.roles:
    return TOOL
  return role


def _content(message: dict[str, Any], role: str, where: str) -> str:
  """Returns the content of a message as a text."""
  value = message.get('content')
  if role == ASSISTANT and not value:
    value = message.get('refusal') or value
  name = f'{where}.content'
  if isinstance(value, list):
    if not value:
      fields.fail(name, 'it is empty. Send a text, or parts with text')
    parts = enumerate(value)
    return '\n'.join(_part(p, role, f'{name}[{i}]') for i, p in parts)
  if value is None:
    # The content of other messages would be lost.
    if role not in (ASSISTANT, TOOL, FUNCTION):
      fields.fail(name, 'it is missing. Send a text, or parts with text')
    return ''
  return _text(value, name)


def _part(part: Any, role: str, where: str) -> str:
  """Returns the text of a part of a message's content."""
  if isinstance(part, str):
    return part
  if not isinstance(part, dict):
    fields.fail(where, f'{fields.shown(part)} is not an object')
  kind = part.get('type', 'text')
  member = _TEXTS.get(kind) if isinstance(kind, str) else None
  if member is None or (member == 'refusal' and role != ASSISTANT):
    fields.fail(
      where,
      f'a {role} message cannot have a part of the type {fields.shown(kind)}.'
      ' This server reads only text. Remove the part',
    )
  return _text(part.get(member), f'{where}.{member}')


def _tool_calls(message: dict[str, Any], where: str) -> list[dict[str, Any]]:
  """Returns the calls of tools, with their arguments as objects."""
  calls, where_calls = message.get('tool_calls') or [], f'{where}.tool_calls'
  if not isinstance(calls, list):
    fields.fail(where_calls, f'{fields.shown(calls)} is not an array')
  result = [_call(c, f'{where_calls}[{i}]') for i, c in enumerate(calls)]
  if (old := message.get('function_call')) is not None:
    # OpenAI's older form has one call without an id.
    call = {'type': 'function', 'function': old}
    result.append(_call(call, f'{where}.function_call', old=True))
  return result


def _call(call: Any, where: str, old: bool = False) -> dict[str, Any]:
  function = call.get('function') if isinstance(call, dict) else None
  inner = where if old else f'{where}.function'
  if not isinstance(function, dict):
    fields.fail(inner, 'send an object with name and arguments')
  name = _text(function.get('name'), f'{inner}.name')
  arguments = _arguments(function.get('arguments'), f'{inner}.arguments')
  return {
    **call,
    'function': {**function, 'name': name, 'arguments': arguments},
  }


def _arguments(value: Any, where: str) -> dict[str, Any]:
  """Returns the arguments of a call, which clients send as a JSON text."""
  if isinstance(value, str):
    try:
      value = msgspec.json.decode(value.strip() or '{}')
    except (ValueError, RecursionError) as e:
      fields.fail(where, f'it is not valid JSON: {e}. Send an object as JSON')
  if value is not None and not isinstance(value, dict):
    fields.fail(where, f'{fields.shown(value)} is not an object')
  return value or {}


def _text(value: Any, where: str) -> str:
  if value is None:
    fields.fail(where, 'it is missing. Send a text')
  if not isinstance(value, str):
    fields.fail(where, f'{fields.shown(value)} is not a string')
  return value
