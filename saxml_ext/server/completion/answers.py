"""Builds the messages of a completion from the engine's progress and result."""

import codecs
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from saxml_ext.engine import request as request_lib
from saxml_ext.protobuf import completion_pb2
from saxml_ext.server.completion import parsed_request
from saxml_ext.server.loading import servable as servable_lib
from saxml_ext.server.vocabulary import codec as codec_lib

_Part: TypeAlias = request_lib.Partial | request_lib.Hypothesis

_STOP = completion_pb2.FINISH_REASON_STOP
_LENGTH = completion_pb2.FINISH_REASON_LENGTH


class Answers:
  """All answers of one request, and the parts that were already sent.

  Streamed samples keep the engine's order; other answers are sent best first.
  In a beam search, the best answer is sent while it grows. Only the beginning
  that all possible winners share is sent. The other answers follow at the end.

  Attributes:
    ended: True if everything was sent.
  """

  def __init__(
    self, model: servable_lib.Servable, request: parsed_request.ParsedRequest
  ):
    """Starts with no sent text."""
    self.ended = False
    self._request = request
    self._codec = model.codecs.words or model.codecs.output
    self._choices: list[Choice] = []
    # Answers that are not streamed wait here for the others.
    self._unsent: dict[int, completion_pb2.Choice] = {}

  def next(
    self, progress: request_lib.Progress
  ) -> completion_pb2.CompleteResponse | None:
    """Returns the message of a progress, or None if there is nothing to send.

    Args:
      progress: The progress of the engine, which must extend the previous one.
    """
    for i, part in enumerate(progress.rows):
      choice = self._choice(i)
      choice.grow(part)
      if self._request.sampled and (choice.ended or part.finished):
        if not choice.finished:
          choice.finish(part, part.score)
    if all(choice.finished for choice in self._choices):
      return self._last()
    return self._response()

  def last(self, result: request_lib.Result) -> completion_pb2.CompleteResponse:
    """Returns the message that completes the answers of the engine's result."""
    hypotheses = list(result.hypotheses)
    if self._request.sampled:
      hypotheses.sort(key=lambda hypothesis: hypothesis.row)
    for i, hypothesis in enumerate(hypotheses[: self._request.n]):
      choice = self._choice(i)
      if not choice.finished:
        choice.finish(hypothesis, hypothesis.logprob)
    return self._last()

  def _choice(self, i: int) -> 'Choice':
    while len(self._choices) <= i:
      self._choices.append(
        Choice(len(self._choices), self._request, self._codec)
      )
    return self._choices[i]

  def _last(self) -> completion_pb2.CompleteResponse:
    self.ended = True
    message = self._response() or completion_pb2.CompleteResponse()
    if not self._request.stream:
      choices = sorted(self._unsent.values(), key=lambda c: -c.score)
      for index, choice in enumerate(choices):
        choice.index = index
      message.choices.extend(choices)
    message.usage.prompt_tokens = len(self._request.query.tokens)
    message.usage.completion_tokens = sum(c.generated for c in self._choices)
    return message

  def _response(self) -> completion_pb2.CompleteResponse | None:
    deltas = [d for c in self._choices if (d := c.take()) is not None]
    if self._request.stream:
      return completion_pb2.CompleteResponse(choices=deltas) if deltas else None
    for delta in deltas:
      unsent = self._unsent.setdefault(delta.index, completion_pb2.Choice())
      text = unsent.text + delta.text
      unsent.MergeFrom(delta)
      unsent.text = text
    return None


class Choice:
  """One answer: its text, its tokens and its finish reason.

  A token is sent with the text that it completes. If a stop text ends the
  answer, the tokens that belong only to that text are not sent.

  Attributes:
    ended: True if the text is complete.
    finished: True if everything is known, including the score.
    generated: The number of processed tokens, including those of a stop text.
  """

  def __init__(
    self,
    index: int,
    request: parsed_request.ParsedRequest,
    codec: codec_lib.Codec,
  ):
    """Creates an answer without tokens.

    Args:
      index: The index of the answer.
      request: The request.
      codec: The codec of the answer's text.
    """
    self.ended = False
    self.finished = False
    self.generated = 0
    self._request = request
    self._codec = codec
    self._text = codec.growing(request.context)
    self._cutter = Cutter(request.stop_texts)
    self._delta = completion_pb2.Choice(index=index)
    self._end = completion_pb2.Choice()  # Sent at the end.
    self._delta.text = request.echo
    self._utf8 = codecs.getincrementaldecoder('utf-8')('replace')
    # A decoder drops the blank before the first word of a text.
    self._is_first = not request.context
    self._decoded = 0  # The length of the text before the cutter.
    self._length = 0  # The length of the texts of the tokens.
    self._passed = 0  # The length of the text after the cutter.
    self._waiting: list[tuple[int, completion_pb2.Token]] = []

  def grow(self, part: _Part) -> None:
    """Adds the new tokens of an unfinished answer.

    Args:
      part: The engine's `Partial` or `Hypothesis`, which must extend the
        previous one.
    """
    new = part.tokens[self.generated :].tolist()
    for pos, token in enumerate(new, self.generated):
      if self.ended:
        return
      self.generated += 1
      self._take(token, pos, part)

  def finish(self, part: _Part, logprob: float) -> None:
    """Adds the rest of the answer, unless a stop has ended it before.

    Args:
      part: The engine's `Partial` or `Hypothesis`, as in `grow`.
      logprob: The sum of its tokens' log-probabilities.
    """
    self.grow(part)
    if not self.ended:
      self._finish_text()
      self._conclude(completion_pb2.Choice(finish_reason=_LENGTH))
    self._delta.MergeFrom(self._end)
    self._delta.score = part.score
    self._delta.logprob = logprob
    self.finished = True

  def take(self) -> completion_pb2.Choice | None:
    """Returns the part to send now, or None if there is nothing to send."""
    delta = self._delta
    if not (delta.text or delta.tokens or delta.finish_reason):
      return None
    self._delta = completion_pb2.Choice(index=delta.index)
    return delta

  def _take(self, token: int, pos: int, part: _Part) -> None:
    request = self._request
    is_watched = pos >= (request.query.min_new_tokens or 0)
    if token in request.stop_ids or (
      token in request.watched_ids and is_watched
    ):
      # A stop token has no text, so the text that was held back is complete.
      self._finish_text()
      made = self._token(token, pos, part, False)
      self._waiting.append((self._length, made))
      self._conclude(
        completion_pb2.Choice(finish_reason=_STOP, stop_token_id=token)
      )
      return
    made = self._token(token, pos, part, True)
    self._waiting.append((self._length, made))
    self._length += len(made.text)
    self._add(self._text.push(token))
    if self._cutter.stop:
      self._conclude(completion_pb2.Choice())

  def _finish_text(self) -> None:
    text = self._text.finish()
    if self._utf8.getstate()[0] and self._waiting:
      # Replacements stand for the bytes of an incomplete character.
      replacements = text[self._length - self._decoded :]
      self._utf8.reset()
      self._waiting[-1][1].text += replacements
      self._length += len(replacements)
    self._add(text)

  def _add(self, text: str) -> None:
    self._decoded += len(text)
    self._pass(self._cutter.feed(text))

  def _pass(self, text: str) -> None:
    self._delta.text += text
    self._passed += len(text)
    # Only tokens whose text has been passed on are sent. A token without text
    # is sent with the next one.
    starts = [start for start, _ in self._waiting] + [self._length]
    done = sum(end <= self._passed for end in starts[1:])
    if self._utf8.getstate()[0]:  # The last token may get a replacement.
      done = min(done, len(self._waiting) - 1)
    self._send_tokens(done)

  def _send_tokens(self, count: int) -> None:
    self._delta.tokens.extend(token for _, token in self._waiting[:count])
    del self._waiting[:count]

  def _conclude(self, end: completion_pb2.Choice) -> None:
    """Ends the answer by a stop text, if there is one, or with `end`."""
    if self._cutter.stop:
      self._send_tokens(sum(start < self._passed for start, _ in self._waiting))
      end = completion_pb2.Choice(
        finish_reason=_STOP, stop_text=self._cutter.stop
      )
    else:
      self._pass(self._cutter.finish())
      self._send_tokens(len(self._waiting))
    self._end = end
    self.ended = True

  def _token(
    self, token: int, pos: int, part: _Part, has_text: bool
  ) -> completion_pb2.Token:
    made = completion_pb2.Token(token_id=token)
    if has_text:
      piece = self._codec.piece(token)
      if self._is_first and piece.startswith(b' '):
        piece = self._codec.decode([token]).encode()
      self._is_first = self._is_first and not piece
      # The last token of a character has its text.
      made.text = self._utf8.decode(piece)
      if made.text.encode() != piece:
        made.utf8 = piece
    if part.token_logprobs is not None:
      made.logprob = part.token_logprobs[pos]
    if part.alternatives is not None:
      ids, logprobs = part.alternatives
      made.alternatives.extend(self._alternatives(ids[pos], logprobs[pos]))
    return made

  def _alternatives(
    self, ids: np.ndarray, logprobs: np.ndarray
  ) -> Sequence[completion_pb2.Alternative]:
    alternatives = []
    most = self._request.query.logprobs or 0
    for token, logprob in zip(ids[:most].tolist(), logprobs.tolist()):
      text, raw = self._piece(token)
      alternatives.append(
        completion_pb2.Alternative(
          token_id=token, text=text, utf8=raw, logprob=logprob
        )
      )
    return alternatives

  def _piece(self, token: int) -> tuple[str, bytes]:
    """Returns a token's text, or its bytes if they are no whole characters."""
    piece = self._codec.piece(token)
    try:
      return piece.decode(), b''
    except UnicodeDecodeError:
      return '', piece


class Cutter:
  """Passes a text on up to the first stop text.

  The possible beginning of a stop text is held back until more text arrives. If
  there are several stop texts, the one that ends first is used. If several end
  at the same position, the longest is used. The result does not depend on how
  the text is split into parts.

  Attributes:
    stop: The stop text that ended the text; '' before that.
  """

  def __init__(self, stops: Sequence[str]):
    """Creates a cutter; the `stops` must not be empty texts."""
    self.stop = ''
    self._stops = tuple(stops)
    self._held = ''

  def feed(self, text: str) -> str:
    """Takes the next part; returns the text to pass on, without a stop text."""
    if self.stop:
      return ''
    text = self._held + text
    self._held = ''
    ends = [
      (start + len(stop), start, stop)
      for stop in self._stops
      if (start := text.find(stop)) >= 0
    ]
    if ends:
      _, start, self.stop = min(ends)
      return text[:start]
    kept = len(text) - self._beginning(text)
    self._held = text[kept:]
    return text[:kept]

  def finish(self) -> str:
    """Returns the text that was held back, at the end of the text."""
    held, self._held = self._held, ''
    return held

  def _beginning(self, text: str) -> int:
    """Returns the length of the longest suffix that begins a stop text."""
    return max(
      (
        n
        for stop in self._stops
        for n in range(1, min(len(stop), len(text) + 1))
        if text.endswith(stop[:n])
      ),
      default=0,
    )
