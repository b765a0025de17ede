"""OpenAI's two forms of the log-probabilities of tokens."""

from collections.abc import Sequence
from typing import Any

from saxml_ext.protobuf import completion_pb2

_Piece = completion_pb2.Token | completion_pb2.Alternative


def name_of(piece: _Piece) -> str:
  """A token as completions show it.

  A part of a character has no text; OpenAI shows its bytes, "bytes:\\xe2\\x82".
  """
  if piece.text or not piece.utf8:
    return piece.text
  return 'bytes:' + ''.join(f'\\x{byte:02x}' for byte in piece.utf8)


def of_completion(
  tokens: Sequence[completion_pb2.Token], offset: int
) -> dict[str, list[Any]]:
  """The form of completions.

  Args:
    tokens: consecutive ones of an answer.
    offset: characters of the answer before them.
  """
  offsets = []
  for token in tokens:
    offsets.append(offset)
    offset += len(token.text)
  return {
    'tokens': [name_of(token) for token in tokens],
    'token_logprobs': [token.logprob for token in tokens],
    'top_logprobs': [_top(token) for token in tokens],
    'text_offset': offsets,
  }


def _top(token: completion_pb2.Token) -> dict[str, float]:
  """The likeliest tokens of a place, and the chosen one."""
  result = {name_of(token): token.logprob}
  for other in token.alternatives:
    # Two tokens can have one text: the likelier one stands for both.
    result.setdefault(name_of(other), other.logprob)
  return dict(sorted(result.items(), key=lambda item: -item[1]))


def of_chat(
  tokens: Sequence[completion_pb2.Token],
) -> dict[str, list[dict[str, Any]]]:
  """The form of chat completions."""
  return {
    'content': [
      _piece(token)
      | {'top_logprobs': [_piece(other) for other in token.alternatives]}
      for token in tokens
    ]
  }


def _piece(piece: _Piece) -> dict[str, Any]:
  return {
    'token': piece.text,
    'logprob': piece.logprob,
    'bytes': list(piece.utf8 or piece.text.encode()),
  }
