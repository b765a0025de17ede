"""Requests of sax.completion, whose streams go on when a replica is lost.

Only servers of this repository have the service.
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

# Replicas that a stream may lose: what kills them is maybe the request itself,
# which is not to kill all of them.
_MOST_LOSSES = 3

Prompt = str | Sequence[int]
_SequenceT = TypeVar('_SequenceT', str, list[int])


def request(
  model_id: str, prompt: Prompt, settings: dict[str, Any]
) -> completion_pb2.CompleteRequest:
  """Returns a request; raises InvalidArgument for unknown settings."""
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
      f'not the settings of a completion: {e}; there are {known}'
    ) from e
  request.model_key = model_id
  if isinstance(prompt, str):
    request.text = prompt
  else:
    request.token_ids.ids.extend(prompt)
  return request


async def stream(
  client: data_client.DataClient,
  prompt: Prompt,
  settings: dict[str, Any],
  timeout: float | None,
) -> AsyncGenerator[completion_pb2.CompleteResponse, None]:
  """Yields the answers while they grow, see `lm.LM.CompleteStream`."""
  settings.setdefault('fallback_seed', request_options.draw_seed())
  message = request(client.model_id, prompt, settings | {'stream': True})
  end = None if timeout is None else time.monotonic() + timeout
  said = _Said()
  while True:
    left = None if end is None else max(0.0, end - time.monotonic())
    responses = client.stream(COMPLETE, message, left)
    try:
      async with contextlib.aclosing(responses):
        async for response in responses:
          news = said.news(response)
          if news is not None:
            yield news
        return
    except errors.Unavailable as e:
      # With nothing said, the request was sent again already as it may be.
      if not said.begun:
        raise
      said.restart(e)
    except _Differs as e:
      raise said.differs() from e


class _Differs(Exception):
  """Another replica says something else."""


class _Sequence(Generic[_SequenceT]):
  """A text or ids that were said, and how much of it is said once more."""

  def __init__(self, empty: _SequenceT):
    self._said: _SequenceT = empty
    self.again = 0

  def news(self, items: _SequenceT) -> _SequenceT:
    """Returns the items that were not said yet; raises _Differs."""
    known = self._said[self.again : self.again + len(items)]
    if items[: len(known)] != known:
      raise _Differs()
    self.again += len(items)
    news = items[len(known) :]
    self._said += news
    return news

  def is_behind(self) -> bool:
    """Returns whether not all that was said is said once more."""
    return self.again < len(self._said)


class _Told:
  """The part of one answer that was said."""

  def __init__(self):
    self.text = _Sequence('')
    self.ids = _Sequence([])
    self.has_ended = False

  def news(self, choice: completion_pb2.Choice) -> completion_pb2.Choice | None:
    """Returns what of the choice was not said yet; raises _Differs."""
    text = self.text.news(choice.text)
    ids = self.ids.news([token.token_id for token in choice.tokens])
    if self.has_ended:
      if text or ids:
        raise _Differs()
      return None
    self.has_ended = bool(choice.finish_reason)
    if self.has_ended and (self.text.is_behind() or self.ids.is_behind()):
      raise _Differs()  # It ended before what was said.
    news = completion_pb2.Choice()
    news.CopyFrom(choice)
    news.text = text
    del news.tokens[: len(choice.tokens) - len(ids)]
    return news if text or ids or choice.finish_reason else None


class _Said:
  """The parts of all answers of a stream that were said.

  Attributes:
    begun: True if there was a message.
  """

  def __init__(self):
    self.begun = False
    self._told: dict[int, _Told] = {}
    self._losses = 0
    self._lost: errors.Unavailable | None = None

  def news(
    self, response: completion_pb2.CompleteResponse
  ) -> completion_pb2.CompleteResponse | None:
    """Returns the part of a message that was not said yet; raises _Differs."""
    self.begun = True
    choices: list[completion_pb2.Choice] = []
    for choice in response.choices:
      told = self._told.setdefault(choice.index, _Told())
      if (new := told.news(choice)) is not None:
        choices.append(new)
    if not choices and not response.HasField('usage'):
      return None
    news = completion_pb2.CompleteResponse(choices=choices)
    if response.HasField('usage'):
      news.usage.CopyFrom(response.usage)
    return news

  def restart(self, lost: errors.Unavailable) -> None:
    """Expects everything once more, from the beginning.

    Raises:
      errors.Unavailable: too many replicas were lost.
    """
    self._losses += 1
    if self._losses >= _MOST_LOSSES:
      raise errors.Unavailable(
        f'{self._losses} replicas were lost while they answered, the last one:'
        f' {lost.message}'
      ) from lost
    self._lost = lost
    for told in self._told.values():
      told.text.again = told.ids.again = 0

  def differs(self) -> errors.Unavailable:
    """Returns the error if another replica says something else."""
    reason = '' if self._lost is None else f' ({self._lost.message})'
    return errors.Unavailable(
      f'the replica was lost in the middle of a stream{reason}, and another'
      ' one answers differently; ask again'
    )
