"""The forms of a completion's prompt: text or token ids, one or several."""

from collections.abc import Sequence
from typing import Any

from saxml_ext.http.protocol import fields as fields_lib

Prompt = str | Sequence[int]

# Of one request, each a request of its own in the cell.
_MOST_PROMPTS = 256
# Far above any model's; the model's own limit is for the cell to tell.
_MOST_IDS = 2**20


def take(fields: fields_lib.Fields) -> list[Prompt]:
  """Takes `prompt`: a text, texts, ids or arrays of ids.

  Raises:
    problems.BadRequest: it is absent or of none of these forms.
  """
  if 'prompt' not in fields:
    fields.fail('prompt', 'it is missing; send a text or token ids')
  value = fields.raw('prompt')
  if isinstance(value, str):
    return [_text(fields, value)]
  if not isinstance(value, list) or not value:
    fields.fail('prompt', 'send a text, token ids, or an array of either')
  if all(map(fields_lib.is_integer, value)):
    return [_ids(fields, value)]
  if len(value) > _MOST_PROMPTS:
    fields.fail(
      'prompt',
      f'{len(value)} prompts were sent; the limit is {_MOST_PROMPTS}',
    )
  return [_one(fields, item) for item in value]


def _one(fields: fields_lib.Fields, value: Any) -> Prompt:
  if isinstance(value, str):
    return _text(fields, value)
  if isinstance(value, list) and all(map(fields_lib.is_integer, value)):
    return _ids(fields, value)
  fields.fail('prompt', 'send texts only, or arrays of token ids only')


def _text(fields: fields_lib.Fields, value: str) -> str:
  fields.check_text('prompt', value)
  return value


def _ids(fields: fields_lib.Fields, value: list[int]) -> list[int]:
  if not value:
    fields.fail('prompt', 'it has no token')
  # Checked as any list of ids; put back for that.
  return fields_lib.Fields({'prompt': value}).ids('prompt', _MOST_IDS)
