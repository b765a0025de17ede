"""/tokenize and /detokenize, in vLLM's form."""

import dataclasses
from typing import Any

from saxml_ext.http.protocol import chat
from saxml_ext.http.protocol import fields as fields_lib
from saxml_ext.http.protocol import model_profiles
from saxml_ext.protobuf import completion_pb2

_MOST_IDS = 2**20


@dataclasses.dataclass(frozen=True)
class Tokenize:
  """A request.

  Attributes:
    model: as the request names it; None if it names none.
    text: to be split into tokens.
    strings: whether the texts of the tokens are wanted, too.
  """

  model: str | None
  text: str
  strings: bool

  def body(self, response: completion_pb2.TokenizeResponse) -> dict[str, Any]:
    """The answer."""
    return {
      'count': len(response.ids),
      'max_model_len': response.max_model_len,
      'tokens': list(response.ids),
      'token_strs': list(response.texts) if self.strings else None,
    }


def parse_tokenize(
  body: fields_lib.Body, profile_of: model_profiles.ProfileOf
) -> Tokenize:
  """Reads a request with a prompt or with a conversation.

  Raises:
    problems.BadRequest: a parameter does not fit, or cannot be honoured.
  """
  fields = fields_lib.of(body)
  model = fields.text('model')
  if 'messages' in fields:
    _, text = chat.take_prompt(fields, profile_of(model).template)
  else:
    found = fields.text('prompt')
    if found is None:
      fields.fail('prompt', 'it is missing; send a text, or messages')
    text = found
  strings = fields.flag('return_token_strs') or False
  fields.refuse_unless({'add_special_tokens': (True,)})
  fields.finish()
  return Tokenize(model, text, strings)


@dataclasses.dataclass(frozen=True)
class Detokenize:
  """A request.

  Attributes:
    model: as the request names it; None if it names none.
    ids: of the tokens.
  """

  model: str | None
  ids: list[int]

  def body(self, text: str) -> dict[str, Any]:
    """The answer."""
    return {'prompt': text}


def parse_detokenize(body: fields_lib.Body) -> Detokenize:
  """Reads a request.

  Raises:
    problems.BadRequest: a parameter does not fit.
  """
  fields = fields_lib.of(body)
  model = fields.text('model')
  if 'tokens' not in fields:
    fields.fail('tokens', 'it is missing; send an array of token ids')
  ids = fields.ids('tokens', _MOST_IDS)
  fields.finish()
  return Detokenize(model, ids)
