"""Keeps special tokens in a request's texts apart from those of its template.

In the prompt, literal segments replace the digits that stand for the tokens in
the texts, see `hidden_tokens`. The model server encodes them as plain text. So
a message cannot imitate another role.
"""

from collections.abc import Sequence

from saxml_ext.http.protocol import hidden_tokens
from saxml_ext.protobuf import completion_pb2


class Marks(hidden_tokens.HiddenTokens):
  """The special tokens in the texts of one request, and its prompt."""

  def prompt(self, rendered: str) -> str | completion_pb2.Segments:
    """Returns a rendered text, in segments if special tokens were replaced."""
    return prompt(self.parts(rendered))


def prompt(parts: Sequence[tuple[str, bool]]) -> str | completion_pb2.Segments:
  """Returns a prompt of parts; each is a text, with True if it is literal."""
  if len(parts) == 1:
    return parts[0][0]
  return completion_pb2.Segments(
    segments=[
      completion_pb2.Segment(text=text, literal=literal)
      for text, literal in parts
    ]
  )
