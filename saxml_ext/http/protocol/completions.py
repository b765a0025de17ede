"""Parses requests of /v1/completions and formats their answers."""

import abc
from collections.abc import Mapping, Sequence
import dataclasses
import math
from typing import Any, ClassVar

from saxml_ext.common import request_options
from saxml_ext.http.protocol import answers
from saxml_ext.http.protocol import fields
from saxml_ext.http.protocol import sampling
from saxml_ext.http.protocol import templates
from saxml_ext.protobuf import completion_pb2


@dataclasses.dataclass(frozen=True)
class Form(abc.ABC):
  """A request for completions, and the format of its answer.

  Attributes:
    OBJECT: The type of a complete answer.
    CHUNK: The type of a chunk of a streamed answer.
    request: The request.
    prompts: The prompts, each of which gets `request.n` answers.
    settings: The fields of `completion_pb2.CompleteRequest`, except the prompt.
    defaults: The model's values of parameters that the request leaves out.
    wants_logprobs: True if answers include log-probabilities.
  """

  OBJECT: ClassVar[str]
  CHUNK: ClassVar[str]

  request: sampling.Sampling
  prompts: Sequence[sampling.Prompt]
  settings: Mapping[str, Any]
  defaults: Mapping[str, Any]
  wants_logprobs: bool

  def all_settings(
    self, limits: completion_pb2.DescribeResponse | None
  ) -> dict[str, Any]:
    """Returns `settings` with those defaults that the model accepts.

    A default never makes the cell refuse a request.

    Args:
      limits: The limits of the model; None if they are unknown.
    """
    defaults = self.defaults.keys() - self.settings.keys()
    if self.settings.get('use_beam_search') or (
      limits and not limits.max_samples
    ):
      defaults -= request_options.OF_SAMPLES.keys()
    found = {name: self.defaults[name] for name in defaults}
    most: float = math.inf
    if limits:
      most = limits.max_new_tokens
      is_single = self.settings['n'] == 1 and 'num_beams' not in self.settings
      if most == limits.max_model_len and not is_single:
        # Only a single answer may use the whole context.
        found.pop('max_tokens', None)
      if 'top_k' in found and limits.max_top_k and not limits.max_beams:
        found['top_k'] = min(found['top_k'], limits.max_top_k)
    if 'max_tokens' in found:
      found['max_tokens'] = min(found['max_tokens'], most)
    if 'min_tokens' in found:
      most = {**found, **self.settings}.get('max_tokens', most)
      found['min_tokens'] = min(found['min_tokens'], most)
    return {**found, **self.settings}

  @abc.abstractmethod
  def _whole(self, answer: answers.Answer, prompt: int) -> dict[str, Any]:
    """Returns the members of a complete answer that only this format has."""

  @abc.abstractmethod
  def parts(
    self, news: answers.Answer, prompt: int, offset: int | None
  ) -> list[dict[str, Any]]:
    """Returns the choices that report a new part of an answer.

    Args:
      news: The new part.
      prompt: The number of the prompt.
      offset: The number of characters of the answer before this part; None if
        this part is the first.
    """

  def body(
    self, head: dict[str, Any], collected: Sequence[answers.Collected]
  ) -> dict[str, Any]:
    """Returns the complete answer; `head` has its id, time and model."""
    choices = []
    for i, part in enumerate(collected):
      for answer in part.best(self.request.n):
        index = i * self.request.n + answer.index
        answer = dataclasses.replace(answer, index=index)
        choices.append(self._whole(answer, i))
    usage = answers.usage_of([part.usage for part in collected])
    return {**head, 'object': self.OBJECT, 'choices': choices, 'usage': usage}

  def _choice(self, answer: answers.Answer) -> dict[str, Any]:
    """Returns the members of a choice that all formats share.

    The scores are present only after the end of the answer.
    """
    reason = answer.stop_reason
    # As in vLLM, the model's own stop id is not reported as a stop reason.
    if isinstance(reason, int) and reason not in (
      self.request.stop_token_ids or ()
    ):
      reason = None
    choice: dict[str, Any] = {
      'index': answer.index,
      'finish_reason': answer.finish_reason,
      'stop_reason': reason,
      'logprobs': None,
    }
    if answer.score is not None:
      choice |= {'score': answer.score, 'cumulative_logprob': answer.logprob}
    return choice

  def _ids(self, answer: answers.Answer) -> dict[str, Any]:
    if not self.request.return_token_ids:
      return {}
    return {'token_ids': [token.token_id for token in answer.tokens]}


class Chunks:
  """The chunks of a streamed answer."""

  def __init__(self, form: Form):
    self._form = form
    self._offsets: dict[int, int] = {}
    self._tokens = 0

  def chunks(
    self,
    head: dict[str, Any],
    prompt: int,
    response: completion_pb2.CompleteResponse,
  ) -> list[dict[str, Any]]:
    """Returns the chunks that report the new parts in a message."""
    found = []
    for choice in response.choices:
      index = prompt * self._form.request.n + choice.index
      news = answers.Answer(index).add(choice)
      offset = self._offsets.get(index)
      length = sum(len(token.text) for token in news.tokens)
      self._offsets[index] = (offset or 0) + length
      self._tokens += len(news.tokens)
      found += self._form.parts(news, prompt, offset)
    if self._form.request.continuous_usage:
      head = {**head, 'usage': self._usage(head['usage'])}
    return [
      {**head, 'object': self._form.CHUNK, 'choices': [choice]}
      for choice in found
    ]

  def _usage(self, prompt: Mapping[str, int]) -> dict[str, int]:
    """Returns the token counts so far; `prompt` counts only the prompts."""
    total = prompt['prompt_tokens'] + self._tokens
    return {
      **prompt,
      'completion_tokens': self._tokens,
      'total_tokens': total,
    }

  def last(self, head: dict[str, Any], usage: dict[str, int]) -> dict[str, Any]:
    """Returns the chunk with the token counts."""
    return {**head, 'object': self._form.CHUNK, 'choices': [], 'usage': usage}


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


class Completions(Form):
  """A request for completions, and the format of its answer."""

  OBJECT = CHUNK = 'text_completion'

  def _whole(self, answer: answers.Answer, prompt: int) -> dict[str, Any]:
    return self.parts(answer, prompt, 0)[0]

  def parts(
    self, news: answers.Answer, prompt: int, offset: int | None
  ) -> list[dict[str, Any]]:
    choice = self._choice(news) | {'text': news.text} | self._ids(news)
    if self.wants_logprobs:
      choice['logprobs'] = answers.completion_logprobs(news.tokens, offset or 0)
    if self.request.return_token_ids:
      # Only ids in the request are returned. The cell does not report the ids
      # of a text prompt.
      ids = self.prompts[prompt]
      choice['prompt_token_ids'] = ids if isinstance(ids, list) else None
    return [choice]


def form_of(request: Request, profile_of: templates.ProfileOf) -> Completions:
  """Returns the `Completions` of a request.

  Raises:
    problems.BadRequest: A parameter is invalid or not supported.
  """
  settings = request.settings()
  if request.echo and request.logprobs is not None:
    fields.fail(
      'echo',
      'log-probabilities of a prompt are not supported. Omit echo or logprobs',
    )
  return Completions(
    request,
    sampling.prompts_of(request.prompt),
    settings,
    profile_of(request.model).defaults,
    request.logprobs is not None,
  )
