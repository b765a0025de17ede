"""From the engine's progress to the messages of Sax's GenerateStream.

A message says of each sample, always in the same order, what is new in its
text. Nothing that was said is taken back (see `vocabulary.growing_text`), so
that `prefix_len` is always the length of what came before: in bytes of UTF-8,
as stock clients cut it. The scores are what a sample's score has changed by;
stock's saxutil adds them up.

Samples keep the engine's order. Of a beam search there is one item, the text
that the best hypothesis is sure to begin with, until all hypotheses follow in
the last message, best first.
"""

from collections.abc import Sequence
from typing import Any

from saxml_ext.engine import request as request_lib
from saxml_ext.protobuf import lm_pb2
from saxml_ext.server.loading import servable as servable_lib


class StreamedAnswers:
  """The texts of one request's answers, as far as they were told."""

  def __init__(
    self, model: servable_lib.Servable, request: request_lib.Request
  ):
    """Nothing was told yet."""
    self._model = model
    self._request = request
    self._rows: list[_Row] = []

  def news(self, progress: Any) -> lm_pb2.GenerateStreamResponse | None:
    """The message of a progress; None if no text has grown.

    Args:
      progress: of the engine; each must go on from the one before.
    """
    items = [
      self._row(i).grow(part.tokens, part.score)
      for i, part in enumerate(progress.rows)
    ]
    if not any(item.text for item in items):
      # The scores are told with the next text.
      for row, item in zip(self._rows, items):
        row.score -= item.scores[0]
      return None
    return lm_pb2.GenerateStreamResponse(items=items)

  def last(self, result: Any) -> lm_pb2.GenerateStreamResponse:
    """The message that completes the answers of the engine's result."""
    hypotheses = list(result.hypotheses)
    if self._is_sampled():
      hypotheses.sort(key=lambda hypothesis: hypothesis.row)
    return lm_pb2.GenerateStreamResponse(
      items=[
        self._row(i).finish(hypothesis.tokens, hypothesis.score)
        for i, hypothesis in enumerate(hypotheses)
      ]
    )

  def _is_sampled(self) -> bool:
    engine = self._model.settings.engine
    return not request_lib.with_defaults(self._request, engine).beam_search

  def _row(self, i: int) -> '_Row':
    while len(self._rows) <= i:
      self._rows.append(_Row(self._model, self._request))
    return self._rows[i]


class _Row:
  """One answer.

  Attributes:
    score: as it was told.
  """

  def __init__(
    self, model: servable_lib.Servable, request: request_lib.Request
  ):
    self.score = 0.0
    self._model = model
    self._request = request
    self._text = model.codecs.output.growing()
    self._taken = 0
    self._length = 0
    # The prompt, if it is to be said, goes before the first text.
    self._held = ''.join(map(self._text.push, model.said_first(request)))

  def grow(
    self, tokens: Sequence[int], score: float
  ) -> lm_pb2.GenerateStreamItem:
    ids = self._model.said_of(self._request, tokens)
    text = ''.join(self._text.push(i) for i in ids[self._taken :])
    self._taken = max(self._taken, len(ids))
    return self._item(text, score)

  def finish(
    self, tokens: Sequence[int], score: float
  ) -> lm_pb2.GenerateStreamItem:
    item = self.grow(tokens, score)
    rest = self._text.finish()
    item.text += rest
    self._length += len(rest.encode())
    return item

  def _item(self, text: str, score: float) -> lm_pb2.GenerateStreamItem:
    text, self._held = self._held + text, ''
    item = lm_pb2.GenerateStreamItem(
      text=text, prefix_len=self._length, scores=[score - self.score]
    )
    self._length += len(text.encode())
    self.score = score
    return item
