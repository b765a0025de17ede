"""Translates requests and answers of /v1/completions."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

from saxml_ext.http.protocol import answers
from saxml_ext.http.protocol import fields
from saxml_ext.http.protocol import form
from saxml_ext.http.protocol import sampling
from saxml_ext.http.protocol import templates
from saxml_ext.protobuf import completion_pb2

# The maximum number of prompts per request. Each becomes a request to the cell.
_MOST_PROMPTS = 256


class Request(sampling.Sampling):
  """A request for completions."""

  prompt: sampling.AnyPrompt
  logprobs: int | None = None
  echo: bool = False

  RANGES: ClassVar[Mapping[str, tuple[float, float]]] = {
    **sampling.Sampling.RANGES,
    'logprobs': sampling.LOGPROBS,
  }
  NEUTRAL: ClassVar[Mapping[str, tuple[Any, ...]]] = {
    **sampling.Sampling.NEUTRAL,
    'top_logprobs': (0,),
  }
  ELSEWHERE: ClassVar[Mapping[str, str]] = {
    'messages': 'this route continues a prompt. Send messages to'
    ' /v1/chat/completions'
  }

  def prompts(self) -> Sequence[sampling.Prompt]:
    """Returns the prompts, each a text or token ids.

    Raises:
      problems.BadRequest: Texts and ids are mixed, or there are too many
      prompts.
    """
    prompts: Any = self.prompt
    if isinstance(prompts, str):
      return [prompts]
    are_ids = [isinstance(item, int) for item in prompts]
    if any(are_ids):
      if not all(are_ids):
        fields.fail('prompt', 'send texts only, or arrays of token ids only')
      return [prompts]
    if len(prompts) > _MOST_PROMPTS:
      fields.fail(
        'prompt',
        f'{len(prompts)} prompts were sent, more than the limit of'
        f' {_MOST_PROMPTS}',
      )
    return prompts


class CompletionForm(form.Form):
  """A request for completions, and the format of its choices."""

  ID = 'cmpl'
  OBJECT = CHUNK = 'text_completion'

  def choice(self, answer: answers.Answer, prompt: int) -> dict[str, Any]:
    return self.deltas(answer, prompt, 0)[0]

  def deltas(
    self, delta: answers.Answer, prompt: int, offset: int | None
  ) -> list[dict[str, Any]]:
    choice = self._shared(delta) | {'text': delta.text} | self._ids(delta)
    if self.wants_logprobs:
      choice['logprobs'] = logprobs(delta.tokens, offset or 0)
    if self.request.return_token_ids:
      # Only ids in the request are returned. The cell does not report the ids
      # of a text prompt.
      ids = self.prompts[prompt]
      choice['prompt_token_ids'] = ids if isinstance(ids, list) else None
    return [choice]

  @classmethod
  def from_request(
    cls, request: Request, profile_of: templates.ProfileOf
  ) -> Self:
    settings = request.settings()
    if request.echo and request.logprobs is not None:
      fields.fail(
        'echo',
        'log-probabilities of a prompt are not supported. Omit echo or'
        ' logprobs',
      )
    return cls(
      request,
      request.prompts(),
      settings,
      profile_of(request.model).defaults,
      request.logprobs is not None,
    )


def _name(piece: completion_pb2.Alternative) -> str:
  r"""Returns the text of an alternative as completions show it.

  A token with only part of a character has no text. OpenAI shows its bytes,
  "bytes:\xe2\x82".
  """
  if piece.text or not piece.utf8:
    return piece.text
  return 'bytes:' + ''.join(f'\\x{byte:02x}' for byte in piece.utf8)


def logprobs(
  tokens: Sequence[completion_pb2.Token], offset: int
) -> dict[str, list[Any]]:
  """Returns the log-probabilities of tokens in this format.

  Args:
    tokens: The consecutive tokens of an answer.
    offset: The number of characters of the answer before them.
  """
  offsets = []
  for token in tokens:
    offsets.append(offset)
    offset += len(token.text)
  return {
    'tokens': [token.text for token in tokens],
    'token_logprobs': [token.logprob for token in tokens],
    'top_logprobs': [_top(token) for token in tokens],
    'text_offset': offsets,
  }


def _top(token: completion_pb2.Token) -> dict[str, float]:
  """Returns the most likely tokens at a position, and the chosen token."""
  result = {token.text: token.logprob}
  for other in token.alternatives:
    if other.utf8 and other.utf8 == token.utf8:
      continue
    # If two tokens have the same text, the more likely one is reported.
    result.setdefault(_name(other), other.logprob)
  return dict(sorted(result.items(), key=lambda item: -item[1]))
