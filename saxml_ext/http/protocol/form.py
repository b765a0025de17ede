"""Defines a request for completions as the cell needs it.

Each API translates its requests to a `Form`, and the form formats the choices
of the answer. The API does not know how the cell generates answers.
"""

import abc
from collections.abc import Mapping, Sequence
import dataclasses
import math
from typing import Any, ClassVar, Self

from saxml_ext.common import request_options
from saxml_ext.http.protocol import answers
from saxml_ext.http.protocol import sampling
from saxml_ext.http.protocol import templates
from saxml_ext.protobuf import completion_pb2


@dataclasses.dataclass(frozen=True)
class Form(abc.ABC):
  """A request for completions, and the format of its answer.

  Attributes:
    ID: The prefix of the ids of answers.
    OBJECT: The type of a complete answer.
    CHUNK: The type of a chunk of a streamed answer.
    request: The request.
    prompts: The prompts, each of which gets `request.n` answers.
    settings: The fields of `completion_pb2.CompleteRequest`, except the prompt.
    defaults: The model's values of parameters that the request leaves out.
    wants_logprobs: True if answers include log-probabilities.
  """

  ID: ClassVar[str]
  OBJECT: ClassVar[str]
  CHUNK: ClassVar[str]

  request: sampling.Sampling
  prompts: Sequence[sampling.Prompt]
  settings: Mapping[str, Any]
  defaults: Mapping[str, Any]
  wants_logprobs: bool

  @classmethod
  @abc.abstractmethod
  def from_request(cls, request: Any, profile_of: templates.ProfileOf) -> Self:
    """Creates the form of a request.

    Args:
      request: The request, which was parsed.
      profile_of: A function that returns the profile of a model.

    Raises:
      problems.BadRequest: A parameter is invalid or not supported.
    """

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
    merged = {name: self.defaults[name] for name in defaults}
    most: float = math.inf
    if limits:
      most = limits.max_new_tokens
      is_single = self.settings['n'] == 1 and 'num_beams' not in self.settings
      if most == limits.max_model_len and not is_single:
        # Only a single answer may use the whole context.
        merged.pop('max_tokens', None)
      if 'top_k' in merged and limits.max_top_k and not limits.max_beams:
        merged['top_k'] = min(merged['top_k'], limits.max_top_k)
    if 'max_tokens' in merged:
      merged['max_tokens'] = min(merged['max_tokens'], most)
    if 'min_tokens' in merged:
      most = {**merged, **self.settings}.get('max_tokens', most)
      merged['min_tokens'] = min(merged['min_tokens'], most)
    return {**merged, **self.settings}

  @abc.abstractmethod
  def choice(self, answer: answers.Answer, prompt: int) -> dict[str, Any]:
    """Returns the choice of a complete answer to the prompt of this number."""

  @abc.abstractmethod
  def deltas(
    self, delta: answers.Answer, prompt: int, offset: int | None
  ) -> list[dict[str, Any]]:
    """Returns the choices that report a new part of an answer.

    Args:
      delta: The new part.
      prompt: The number of the prompt.
      offset: The number of characters of the answer before this part; None if
        this part is the first.
    """

  def _shared(self, answer: answers.Answer) -> dict[str, Any]:
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
