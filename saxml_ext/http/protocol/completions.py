"""/v1/completions: requests, and answers whole or as chunks."""

from collections.abc import Sequence
import dataclasses
from typing import Any

from saxml_ext.http.protocol import fields as fields_lib
from saxml_ext.http.protocol import growing_answer as answers_lib
from saxml_ext.http.protocol import logprobs
from saxml_ext.http.protocol import model_profiles
from saxml_ext.http.protocol import prompts
from saxml_ext.http.protocol import sampling as sampling_lib
from saxml_ext.protobuf import completion_pb2

_OBJECT = 'text_completion'


@dataclasses.dataclass(frozen=True)
class Completions:
  """A request, and the form of its answer.

  Attributes:
    model: as the request names it; None if it names none.
    sampling: what it asks for.
    prompts: each of which gets `sampling.n` answers.
    wants_logprobs: whether answers come with log-probabilities.
  """

  model: str | None
  sampling: sampling_lib.Sampling
  prompts: Sequence[prompts.Prompt]
  wants_logprobs: bool

  def body(
    self, head: dict[str, Any], collected: Sequence[answers_lib.Collected]
  ) -> dict[str, Any]:
    """The whole answer; `head` has its id, time and model."""
    choices = [
      self._choice(dataclasses.replace(answer, index=self._index(i, answer)), i)
      for i, part in enumerate(collected)
      for answer in part.best(self.sampling.n)
    ]
    usage = answers_lib.usage_of([part.usage for part in collected])
    return {**head, 'object': _OBJECT, 'choices': choices, 'usage': usage}

  def streams(self) -> 'Chunks':
    """What turns the cell's messages into chunks."""
    return Chunks(self)

  def _index(self, prompt: int, answer: answers_lib.Answer) -> int:
    return prompt * self.sampling.n + answer.index

  def _choice(
    self, answer: answers_lib.Answer, prompt: int, offset: int = 0
  ) -> dict[str, Any]:
    choice = choice_head(answer, self.sampling) | {
      'text': answer.text,
      'logprobs': None,
    }
    if self.wants_logprobs:
      choice['logprobs'] = logprobs.of_completion(answer.tokens, offset)
    if self.sampling.token_ids:
      choice['token_ids'] = [token.token_id for token in answer.tokens]
      # Those that the request has; the cell does not tell a text's.
      ids = self.prompts[prompt]
      choice['prompt_token_ids'] = None if isinstance(ids, str) else list(ids)
    return choice


class Chunks:
  """The chunks of an answer that is streamed."""

  def __init__(self, completions: Completions):
    self._of = completions
    self._offsets: dict[int, int] = {}

  def chunks(
    self,
    head: dict[str, Any],
    prompt: int,
    response: completion_pb2.CompleteResponse,
  ) -> list[dict[str, Any]]:
    """The chunks that tell a message's news, one per answer."""
    result = []
    for choice in response.choices:
      news = answers_lib.of(choice, choice.index)
      news.index = self._of._index(prompt, news)
      offset = self._offsets.get(news.index, 0)
      self._offsets[news.index] = offset + sum(len(t.text) for t in news.tokens)
      told = self._of._choice(news, prompt, offset)
      result.append({**head, 'object': _OBJECT, 'choices': [told]})
    return result

  def last(self, head: dict[str, Any], usage: dict[str, int]) -> dict[str, Any]:
    """The chunk that counts tokens."""
    return {**head, 'object': _OBJECT, 'choices': [], 'usage': usage}


def choice_head(
  answer: answers_lib.Answer, sampling: sampling_lib.Sampling
) -> dict[str, Any]:
  """What choices of all forms have; scores once the answer has ended."""
  reason = answer.stop_reason
  # Like vLLM: the model's own stop id is no reason that the request has given.
  if isinstance(reason, int) and reason not in sampling.stop_token_ids:
    reason = None
  head: dict[str, Any] = {
    'index': answer.index,
    'finish_reason': answer.finish_reason,
    'stop_reason': reason,
  }
  if answer.score is not None:
    head['score'] = answer.score
    head['cumulative_logprob'] = answer.logprob
  return head


def parse(
  body: fields_lib.Body, profile_of: model_profiles.ProfileOf
) -> Completions:
  """Reads a request.

  Raises:
    problems.BadRequest: a parameter does not fit, or cannot be honoured.
  """
  fields = fields_lib.of(body)
  model = fields.text('model')
  found = prompts.take(fields)
  sampling = sampling_lib.take(fields, 'max_tokens', profile_of(model).defaults)
  alternatives = fields.integer('logprobs', 0)
  echo = fields.flag('echo') or False
  if echo and alternatives is not None:
    fields.fail(
      'echo',
      'log-probabilities of a prompt are not computed; leave out echo or'
      ' logprobs',
    )
  fields.finish()
  if echo:
    sampling.settings['echo'] = True
  if alternatives is not None:
    sampling.settings['logprobs'] = alternatives
  return Completions(model, sampling, found, alternatives is not None)
