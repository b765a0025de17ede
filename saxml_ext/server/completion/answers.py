"""From the engine's progress and result to the messages of a completion."""

from typing import Any

from saxml_ext.protobuf import completion_pb2
from saxml_ext.server.completion import asked as asked_lib
from saxml_ext.server.completion import choices
from saxml_ext.server.loading import servable as servable_lib


class Answers:
  """All answers of one request, as far as they were told.

  Streamed samples keep the engine's order, others come best first. Of a beam
  search the best answer is told while it grows, as far as all beams that may
  win agree on it; the others come at the end.

  Attributes:
    ended: whether all is told.
  """

  def __init__(self, model: servable_lib.Servable, asked: asked_lib.Asked):
    """Nothing was told yet."""
    self.ended = False
    self._asked = asked
    self._codec = model.codecs.words or model.codecs.output
    self._choices: list[choices.Choice] = []
    # Answers that are not streamed wait here for the others.
    self._told: dict[int, completion_pb2.Choice] = {}

  def news(self, progress: Any) -> completion_pb2.CompleteResponse | None:
    """The message of a progress; None if there is nothing to tell yet.

    Args:
      progress: of the engine; each must go on from the one before.
    """
    for i, part in enumerate(progress.rows):
      choice = self._choice(i)
      choice.grow(part)
      if self._asked.sampled and (choice.ended or part.finished):
        if not choice.finished:
          choice.finish(part, part.score)
    if all(choice.finished for choice in self._choices):
      return self._last()
    return self._response()

  def last(self, result: Any) -> completion_pb2.CompleteResponse:
    """The message that completes the answers of the engine's result."""
    hypotheses = list(result.hypotheses)
    if self._asked.sampled:
      hypotheses.sort(key=lambda hypothesis: hypothesis.row)
    for i, hypothesis in enumerate(hypotheses[: self._asked.n]):
      choice = self._choice(i)
      if not choice.finished:
        choice.finish(hypothesis, hypothesis.logprob)
    return self._last()

  def _choice(self, i: int) -> choices.Choice:
    while len(self._choices) <= i:
      self._choices.append(
        choices.Choice(len(self._choices), self._asked, self._codec)
      )
    return self._choices[i]

  def _last(self) -> completion_pb2.CompleteResponse:
    self.ended = True
    message = self._response() or completion_pb2.CompleteResponse()
    if not self._asked.stream:
      choices = sorted(self._told.values(), key=lambda c: -c.score)
      for index, choice in enumerate(choices):
        choice.index = index
      message.choices.extend(choices)
    message.usage.prompt_tokens = len(self._asked.query.tokens)
    message.usage.completion_tokens = sum(c.generated for c in self._choices)
    return message

  def _response(self) -> completion_pb2.CompleteResponse | None:
    news = [n for c in self._choices if (n := c.take()) is not None]
    if self._asked.stream:
      return completion_pb2.CompleteResponse(choices=news) if news else None
    for each in news:
      told = self._told.setdefault(each.index, completion_pb2.Choice())
      text = told.text + each.text
      told.MergeFrom(each)
      told.text = text
    return None
