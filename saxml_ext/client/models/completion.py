"""Sends completion requests, whose streams continue after a replica is lost.

Only servers of this repository have the completion service.
"""

from collections.abc import AsyncGenerator, Sequence
import contextlib
import time
from typing import Any, Generic, TypeVar

from saxml_ext.client.transport import data_client
from saxml_ext.common import errors
from saxml_ext.common import request_options
from saxml_ext.protobuf import completion_pb2
from saxml_ext.protobuf import completion_pb2_grpc

_STUB = completion_pb2_grpc.CompletionStub
COMPLETE = data_client.Method('completion', _STUB, 'Complete')
TOKENIZE = data_client.Method('tokenize', _STUB, 'Tokenize')
DETOKENIZE = data_client.Method('detokenize', _STUB, 'Detokenize')
DESCRIBE = data_client.Method('describe', _STUB, 'Describe')

# The number of lost replicas at which a stream gives up. The request itself may
# crash the replicas, and it must not crash all of them.
_MOST_LOSSES = 3

Prompt = str | Sequence[int] | completion_pb2.Segments
_SequenceT = TypeVar('_SequenceT', str, list[int])


def request(
  model_id: str, prompt: Prompt, settings: dict[str, Any]
) -> completion_pb2.CompleteRequest:
  """Returns the request; raises InvalidArgument for unknown settings."""
  early = settings.get('early_stopping')
  if isinstance(early, bool) or early == 'never':
    number = request_options.EARLY_STOPPING.index(early)
    settings = settings | {'early_stopping': number}
  try:
    request = completion_pb2.CompleteRequest(**settings)
  except (TypeError, ValueError) as e:
    known = ', '.join(
      f.name for f in completion_pb2.CompleteRequest.DESCRIPTOR.fields
    )
    raise errors.InvalidArgument(
      f'invalid settings of a completion (available: {known}): {e}'
    ) from e
  request.model_key = model_id
  if isinstance(prompt, str):
    request.text = prompt
  elif isinstance(prompt, completion_pb2.Segments):
    request.segments.CopyFrom(prompt)
  else:
    request.token_ids.ids.extend(prompt)
  return request


async def stream(
  client: data_client.DataClient,
  prompt: Prompt,
  settings: dict[str, Any],
  timeout: float | None,
) -> AsyncGenerator[completion_pb2.CompleteResponse, None]:
  """Yields the answers while they grow, as `lm.LM.CompleteStream` does."""
  settings.setdefault('fallback_seed', request_options.draw_seed())
  message = request(client.model_id, prompt, settings | {'stream': True})
  end = None if timeout is None else time.monotonic() + timeout
  progress = _StreamProgress()
  while True:
    left = None if end is None else max(0.0, end - time.monotonic())
    responses = client.stream(COMPLETE, message, left)
    try:
      async with contextlib.aclosing(responses):
        async for response in responses:
          delta = progress.delta(response)
          if delta is not None:
            yield delta
        return
    except errors.Unavailable as e:
      # If nothing was received, the client has already made all its retries.
      if not progress.begun:
        raise
      progress.restart(e)
    except _Differs as e:
      raise progress.differs() from e


class _Differs(Exception):
  """An exception: the next replica answers differently."""


class _Sequence(Generic[_SequenceT]):
  """A text or ids that were yielded, and the length received again so far."""

  def __init__(self, empty: _SequenceT):
    self._yielded: _SequenceT = empty
    self.again = 0

  def delta(self, items: _SequenceT) -> _SequenceT:
    """Returns the items that were not yielded yet; raises _Differs."""
    known = self._yielded[self.again : self.again + len(items)]
    if items[: len(known)] != known:
      raise _Differs()
    self.again += len(items)
    delta = items[len(known) :]
    self._yielded += delta
    return delta

  def is_behind(self) -> bool:
    """Returns True if some yielded items were not received again yet."""
    return self.again < len(self._yielded)


class _AnswerProgress:
  """The yielded part of one answer."""

  def __init__(self):
    self.text = _Sequence('')
    self.ids = _Sequence([])
    self.has_ended = False

  def delta(
    self, choice: completion_pb2.Choice
  ) -> completion_pb2.Choice | None:
    """Returns the part of a choice that was not yielded yet.

    Returns:
      The new part, or None if there is none.

    Raises:
      _Differs: The choice contradicts the yielded part.
    """
    text = self.text.delta(choice.text)
    ids = self.ids.delta([token.token_id for token in choice.tokens])
    if self.has_ended:
      if text or ids:
        raise _Differs()
      return None
    self.has_ended = bool(choice.finish_reason)
    if self.has_ended and (self.text.is_behind() or self.ids.is_behind()):
      raise _Differs()  # It ended before the yielded part.
    delta = completion_pb2.Choice()
    delta.CopyFrom(choice)
    delta.text = text
    del delta.tokens[: len(choice.tokens) - len(ids)]
    return delta if text or ids or choice.finish_reason else None


class _StreamProgress:
  """The yielded parts of all answers of a stream.

  Attributes:
    begun: True if a message was received.
  """

  def __init__(self):
    self.begun = False
    self._answers: dict[int, _AnswerProgress] = {}
    self._losses = 0
    self._lost: errors.Unavailable | None = None

  def delta(
    self, response: completion_pb2.CompleteResponse
  ) -> completion_pb2.CompleteResponse | None:
    """Returns the part of a message that was not yielded yet.

    Returns:
      The new part, or None if there is none.

    Raises:
      _Differs: The message contradicts the yielded part.
    """
    self.begun = True
    choices: list[completion_pb2.Choice] = []
    for choice in response.choices:
      answer = self._answers.setdefault(choice.index, _AnswerProgress())
      if (new := answer.delta(choice)) is not None:
        choices.append(new)
    if not choices and not response.HasField('usage'):
      return None
    delta = completion_pb2.CompleteResponse(choices=choices)
    if response.HasField('usage'):
      delta.usage.CopyFrom(response.usage)
    return delta

  def restart(self, lost: errors.Unavailable) -> None:
    """Prepares for an answer that starts again from the beginning.

    Raises:
      errors.Unavailable: Too many replicas were lost.
    """
    self._losses += 1
    if self._losses >= _MOST_LOSSES:
      raise errors.Unavailable(
        f'{self._losses} replicas were lost during the answer. The last'
        f' error: {lost.message}'
      ) from lost
    self._lost = lost
    for answer in self._answers.values():
      answer.text.again = answer.ids.again = 0

  def differs(self) -> errors.Unavailable:
    """Returns the error to raise if the next replica answers differently."""
    reason = '' if self._lost is None else f' ({self._lost.message})'
    return errors.Unavailable(
      f'the replica was lost in the middle of a stream{reason}, and another'
      ' replica gives a different answer. Send the request again'
    )
