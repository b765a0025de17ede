"""Collects the cell's messages into answers in OpenAI's format."""

from collections.abc import Sequence
import dataclasses

from saxml_ext.protobuf import completion_pb2

_FINISH_REASONS = {
  completion_pb2.FINISH_REASON_STOP: 'stop',
  completion_pb2.FINISH_REASON_LENGTH: 'length',
}


@dataclasses.dataclass
class Answer:
  """An answer to a request, or a new part of one.

  Attributes:
    index: The number of the answer within the request.
    text: The text so far.
    tokens: The tokens so far.
    finish_reason: The reason for the end, "stop" or "length"; None before.
    stop_reason: The stop text or stop id that ended the answer.
    score: The score that the search ranks it by; None before the end.
    logprob: The sum of its tokens' log-probabilities; None before the end.
  """

  index: int
  text: str = ''
  tokens: list[completion_pb2.Token] = dataclasses.field(default_factory=list)
  finish_reason: str | None = None
  stop_reason: str | int | None = None
  score: float | None = None
  logprob: float | None = None

  def add(self, choice: completion_pb2.Choice) -> 'Answer':
    """Adds a new part to this answer; returns the answer itself."""
    self.text += choice.text
    self.tokens.extend(choice.tokens)
    self.finish_reason = _FINISH_REASONS.get(choice.finish_reason)
    if self.finish_reason is not None:
      kind = choice.WhichOneof('stop_reason')
      self.stop_reason = getattr(choice, kind) if kind else None
      self.score, self.logprob = choice.score, choice.logprob
    return self

  def logprob_per_token(self) -> float:
    """Returns the log-probability per token, by which best_of ranks answers."""
    return (self.logprob or 0.0) / max(1, len(self.tokens))


@dataclasses.dataclass
class Collected:
  """All answers to one prompt, complete.

  Attributes:
    answers: The answers by index.
    usage: The token counts of the prompt and of all answers.
  """

  answers: dict[int, Answer] = dataclasses.field(default_factory=dict)
  usage: completion_pb2.Usage = dataclasses.field(
    default_factory=completion_pb2.Usage
  )

  def add(self, response: completion_pb2.CompleteResponse) -> None:
    """Adds the parts of a message to the answers."""
    for choice in response.choices:
      self.answers.setdefault(choice.index, Answer(choice.index)).add(choice)
    if response.HasField('usage'):
      self.usage = response.usage

  def best(self, n: int) -> list[Answer]:
    """Returns the best n answers, numbered from 0.

    If there are more than n answers, they are samples to choose from. The
    samples with the highest log-probability per token come first.
    """
    ranked = [self.answers[i] for i in sorted(self.answers)]
    if len(ranked) <= n:
      return ranked
    ranked.sort(key=Answer.logprob_per_token, reverse=True)
    return [
      dataclasses.replace(answer, index=i)
      for i, answer in enumerate(ranked[:n])
    ]


def total_usage(parts: Sequence[completion_pb2.Usage]) -> dict[str, int]:
  """Returns the token counts of all prompts of a request, as OpenAI's usage."""
  prompt = sum(part.prompt_tokens for part in parts)
  completion = sum(part.completion_tokens for part in parts)
  return {
    'prompt_tokens': prompt,
    'completion_tokens': completion,
    'total_tokens': prompt + completion,
  }
