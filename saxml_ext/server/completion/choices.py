"""The answers of a completion, as far as they were told."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from saxml_ext.protobuf import completion_pb2
from saxml_ext.server.completion import asked as asked_lib
from saxml_ext.server.completion import stop_texts
from saxml_ext.server.vocabulary import codec as codec_lib

_STOP = completion_pb2.FINISH_REASON_STOP
_LENGTH = completion_pb2.FINISH_REASON_LENGTH


class Choice:
  """One answer: its text, its tokens and why it ended.

  A token is told with the text that it completes. Where a stop text ends the
  answer, the tokens that are of that text alone are not told.

  Attributes:
    ended: whether nothing will be added to the text.
    finished: whether all is known, its score too.
    generated: tokens taken in, those of a stop text included.
  """

  def __init__(
    self,
    index: int,
    asked: asked_lib.Asked,
    codec: codec_lib.Codec,
  ):
    """Nothing is known yet.

    Args:
      index: of the answer.
      asked: what was asked for.
      codec: of its text.
    """
    self.ended = False
    self.finished = False
    self.generated = 0
    self._asked = asked
    self._codec = codec
    self._text = codec.growing()
    self._cutter = stop_texts.Cutter(asked.stop_texts)
    self._news = completion_pb2.Choice(index=index)
    self._end = completion_pb2.Choice()  # What is told when it has finished.
    self._news.text = ''.join(map(self._text.push, asked.said_first))
    self._length = 0  # Of the answer's own text, as far as it is decoded.
    self._passed = 0  # Of that, what has come past the cutter.
    self._waiting: list[tuple[int, completion_pb2.Token]] = []

  def grow(self, part: Any) -> None:
    """Takes what has come to a beginning of the answer, the engine's.

    Args:
      part: a `Partial` or `Hypothesis` that goes on from the one before.
    """
    new = part.tokens[self.generated :].tolist()
    for place, token in enumerate(new, self.generated):
      if self.ended:
        return
      self.generated += 1
      self._take(token, place, part)

  def finish(self, part: Any, logprob: float) -> None:
    """Takes the whole answer, unless a stop has ended it before.

    Args:
      part: as of `grow`.
      logprob: sum of its tokens' log-probabilities.
    """
    self.grow(part)
    if not self.ended:
      self._add(self._text.finish())
      self._conclude(completion_pb2.Choice(finish_reason=_LENGTH))
    self._news.MergeFrom(self._end)
    self._news.score = part.score
    self._news.logprob = logprob
    self.finished = True

  def take(self) -> completion_pb2.Choice | None:
    """What is to be told now; None if there is nothing."""
    news = self._news
    if not (news.text or news.tokens or news.finish_reason):
      return None
    self._news = completion_pb2.Choice(index=news.index)
    return news

  def _take(self, token: int, place: int, part: Any) -> None:
    asked = self._asked
    start = self._length
    is_watched = place >= (asked.query.min_new_tokens or 0)
    if token in asked.stop_ids or (token in asked.watched_ids and is_watched):
      # It has no text of its own; what was held back is complete.
      self._add(self._text.finish())
      self._waiting.append((start, self._token(token, place, part, False)))
      self._conclude(
        completion_pb2.Choice(finish_reason=_STOP, stop_token_id=token)
      )
      return
    self._waiting.append((start, self._token(token, place, part, True)))
    self._add(self._text.push(token))
    if self._cutter.found:
      self._conclude(completion_pb2.Choice())

  def _add(self, text: str) -> None:
    self._length += len(text)
    self._pass(self._cutter.feed(text))

  def _pass(self, text: str) -> None:
    self._news.text += text
    self._passed += len(text)
    # Those whose text has come past; a token without text goes with the next.
    starts = [start for start, _ in self._waiting] + [self._length]
    done = sum(end <= self._passed for end in starts[1:])
    self._tell(done)

  def _tell(self, count: int) -> None:
    self._news.tokens.extend(token for _, token in self._waiting[:count])
    del self._waiting[:count]

  def _conclude(self, end: completion_pb2.Choice) -> None:
    """Ends the answer: by a stop text if there is one, else as given."""
    if self._cutter.found:
      self._tell(sum(start < self._passed for start, _ in self._waiting))
      end = completion_pb2.Choice(
        finish_reason=_STOP, stop_text=self._cutter.found
      )
    else:
      self._pass(self._cutter.finish())
      self._tell(len(self._waiting))
    self._end = end
    self.ended = True

  def _token(
    self, token: int, place: int, part: Any, has_text: bool
  ) -> completion_pb2.Token:
    made = completion_pb2.Token(token_id=token)
    if has_text:
      made.text, made.utf8 = self._piece(token)
    if part.token_logprobs is not None:
      made.logprob = part.token_logprobs[place]
    if part.alternatives is not None:
      ids, logprobs = part.alternatives
      made.alternatives.extend(self._alternatives(ids[place], logprobs[place]))
    return made

  def _alternatives(
    self, ids: np.ndarray, logprobs: np.ndarray
  ) -> Sequence[completion_pb2.Alternative]:
    alternatives = []
    wanted = self._asked.query.logprobs or 0
    for token, logprob in zip(ids[:wanted].tolist(), logprobs.tolist()):
      text, raw = self._piece(token)
      alternatives.append(
        completion_pb2.Alternative(
          token_id=token, text=text, utf8=raw, logprob=logprob
        )
      )
    return alternatives

  def _piece(self, token: int) -> tuple[str, bytes]:
    """Its text, and its bytes where they are no whole characters."""
    piece = self._codec.piece(token)
    try:
      return piece.decode(), b''
    except UnicodeDecodeError:
      return piece.decode(errors='replace'), piece
