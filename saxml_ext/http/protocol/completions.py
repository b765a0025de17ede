"""/v1/completions: requests, and answers whole or as chunks."""

import abc
from collections.abc import Mapping, Sequence
import dataclasses
from typing import Any, ClassVar

from saxml_ext.http.protocol import answers
from saxml_ext.http.protocol import fields
from saxml_ext.http.protocol import sampling
from saxml_ext.http.protocol import templates
from saxml_ext.protobuf import completion_pb2


@dataclasses.dataclass(frozen=True)
class Form(abc.ABC):
  """A request for completions, and the form of its answer.

  Attributes:
    OBJECT: The type of a whole answer.
    CHUNK: The type of a part of an answer that is streamed.
    request: The request.
    prompts: The prompts, each of which gets `request.n` answers.
    settings: Fields of `completion_pb2.CompleteRequest` without the prompt.
    default_max_tokens: The most tokens of an answer if the request sets no
      limit; the model's own limit holds as well.
    wants_logprobs: True if answers come with log-probabilities.
  """

  OBJECT: ClassVar[str]
  CHUNK: ClassVar[str]

  request: sampling.Sampling
  prompts: Sequence[sampling.Prompt]
  settings: Mapping[str, Any]
  default_max_tokens: int | None
  wants_logprobs: bool

  @abc.abstractmethod
  def _whole(self, answer: answers.Answer, prompt: int) -> dict[str, Any]:
    """Returns the members of a whole answer that other forms do not have."""

  @abc.abstractmethod
  def parts(
    self, news: answers.Answer, prompt: int, offset: int | None
  ) -> list[dict[str, Any]]:
    """Returns the choices that report the news of an answer.

    Args:
      news: The news.
      prompt: The number of the prompt.
      offset: The characters of the answer before; None if this is its first.
    """

  def body(
    self, head: dict[str, Any], collected: Sequence[answers.Collected]
  ) -> dict[str, Any]:
    """Returns the whole answer; `head` has its id, time and model."""
    choices = []
    for i, part in enumerate(collected):
      for answer in part.best(self.request.n):
        index = i * self.request.n + answer.index
        answer = dataclasses.replace(answer, index=index)
        choices.append(self._whole(answer, i))
    usage = answers.usage_of([part.usage for part in collected])
    return {**head, 'object': self.OBJECT, 'choices': choices, 'usage': usage}

  def _choice(self, answer: answers.Answer) -> dict[str, Any]:
    """Returns what choices of all forms have; scores once it has ended."""
    reason = answer.stop_reason
    # As in vLLM: the model's own stop id is no reason that the request gave.
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
  """The chunks of an answer that is streamed."""

  def __init__(self, form: Form):
    self._form = form
    self._offsets: dict[int, int] = {}

  def chunks(
    self,
    head: dict[str, Any],
    prompt: int,
    response: completion_pb2.CompleteResponse,
  ) -> list[dict[str, Any]]:
    """Returns the chunks that report the news of a message."""
    found = []
    for choice in response.choices:
      index = prompt * self._form.request.n + choice.index
      news = answers.Answer(index).add(choice)
      offset = self._offsets.get(index)
      length = sum(len(token.text) for token in news.tokens)
      self._offsets[index] = (offset or 0) + length
      found += self._form.parts(news, prompt, offset)
    return [
      {**head, 'object': self._form.CHUNK, 'choices': [choice]}
      for choice in found
    ]

  def last(self, head: dict[str, Any], usage: dict[str, int]) -> dict[str, Any]:
    """Returns the chunk that counts tokens."""
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


class Completions(Form):
  """A request for completions of prompts."""

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
      # Those that the request has; the cell does not report a text's.
      ids = self.prompts[prompt]
      choice['prompt_token_ids'] = None if isinstance(ids, str) else list(ids)
    return [choice]


def form_of(request: Request, profile_of: templates.ProfileOf) -> Completions:
  """Returns the form of a request.

  Raises:
    problems.BadRequest: A parameter does not fit, or cannot be honored.
  """
  defaults = profile_of(request.model).defaults
  settings = request.settings(defaults)
  if request.echo and request.logprobs is not None:
    fields.fail(
      'echo',
      'log-probabilities of a prompt are not computed; leave out echo or'
      ' logprobs',
    )
  return Completions(
    request,
    sampling.prompts_of(request.prompt),
    settings,
    None if request.max_tokens else defaults.get('max_tokens'),
    request.logprobs is not None,
  )
