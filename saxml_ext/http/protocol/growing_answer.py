"""An answer that grows with the cell's messages, and the best of several."""

from collections.abc import Sequence
import dataclasses

from saxml_ext.protobuf import completion_pb2

_FINISH_REASONS = {
  completion_pb2.FINISH_REASON_STOP: 'stop',
  completion_pb2.FINISH_REASON_LENGTH: 'length',
}


@dataclasses.dataclass
class Answer:
  """One of a request's answers, or news about it.

  Attributes:
    index: among the request's answers.
    text: what there is of it.
    tokens: likewise.
    finish_reason: "stop", "length", or None while it goes on.
    stop_reason: the stop text or id that ended it.
    score: what the search ranks it by; None while it goes on.
    logprob: sum of its tokens' log-probabilities; likewise.
  """

  index: int
  text: str = ''
  tokens: list[completion_pb2.Token] = dataclasses.field(default_factory=list)
  finish_reason: str | None = None
  stop_reason: str | int | None = None
  score: float | None = None
  logprob: float | None = None

  def add(self, choice: completion_pb2.Choice) -> None:
    """Takes in news."""
    self.text += choice.text
    self.tokens.extend(choice.tokens)
    self.finish_reason = _FINISH_REASONS.get(choice.finish_reason)
    if self.finish_reason is not None:
      kind = choice.WhichOneof('stop_reason')
      self.stop_reason = getattr(choice, kind) if kind else None
      self.score, self.logprob = choice.score, choice.logprob

  def logprob_per_token(self) -> float:
    """What OpenAI's best_of compares."""
    return (self.logprob or 0.0) / max(1, len(self.tokens))


def of(choice: completion_pb2.Choice, index: int) -> Answer:
  """The news that a message has of one answer."""
  answer = Answer(index)
  answer.add(choice)
  return answer


@dataclasses.dataclass
class Collected:
  """All answers of one prompt, whole.

  Attributes:
    answers: by index.
    usage: tokens of the prompt and of all answers.
  """

  answers: dict[int, Answer] = dataclasses.field(default_factory=dict)
  usage: completion_pb2.Usage = dataclasses.field(
    default_factory=completion_pb2.Usage
  )

  def add(self, response: completion_pb2.CompleteResponse) -> None:
    """Takes in a message."""
    for choice in response.choices:
      answer = self.answers.setdefault(choice.index, Answer(choice.index))
      answer.add(choice)
    if response.HasField('usage'):
      self.usage = response.usage

  def best(self, n: int) -> list[Answer]:
    """The n answers that were asked for, numbered from 0.

    If there are more, they are samples to choose from, and the likeliest by
    token come first.
    """
    found = [self.answers[i] for i in sorted(self.answers)]
    if len(found) <= n:
      return found
    found.sort(key=Answer.logprob_per_token, reverse=True)
    return [
      dataclasses.replace(answer, index=i) for i, answer in enumerate(found[:n])
    ]


def usage_of(parts: Sequence[completion_pb2.Usage]) -> dict[str, int]:
  """OpenAI's count of tokens, over the prompts of a request."""
  prompt = sum(part.prompt_tokens for part in parts)
  completion = sum(part.completion_tokens for part in parts)
  return {
    'prompt_tokens': prompt,
    'completion_tokens': completion,
    'total_tokens': prompt + completion,
  }
