"""Requests of sax.completion, whose streams go on when a replica is lost.

Only servers of this repository have the service.
"""

from collections.abc import AsyncGenerator, Sequence
import contextlib
import time
from typing import Any

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


class _Told:
  """What was said of one answer, and how much of it is said once more."""

  def __init__(self):
    self.text = ''
    self.ids: list[int] = []
    self.has_ended = False
    self.again = 0  # Characters.
    self.ids_again = 0

  def news(self, choice: completion_pb2.Choice) -> completion_pb2.Choice | None:
    """What of the choice was not said yet; raises _Differs."""
    text = self._new_text(choice.text)
    ids = [token.token_id for token in choice.tokens]
    known = self.ids[self.ids_again : self.ids_again + len(ids)]
    if ids[: len(known)] != known or (
      self.has_ended and (text or len(known) < len(ids))
    ):
      raise _Differs()
    self.ids_again += len(ids)
    self.ids += ids[len(known) :]
    ended, self.has_ended = (
      self.has_ended,
      (self.has_ended or bool(choice.finish_reason)),
    )
    if ended:
      return None
    if choice.finish_reason and (
      self.again < len(self.text) or self.ids_again < len(self.ids)
    ):
      raise _Differs()  # It ended before what was said.
    news = completion_pb2.Choice()
    news.CopyFrom(choice)
    news.text = text
    del news.tokens[: len(known)]
    if not (news.text or news.tokens or news.finish_reason):
      return None
    return news

  def _new_text(self, text: str) -> str:
    known = self.text[self.again : self.again + len(text)]
    if not text.startswith(known):
      raise _Differs()
    self.again += len(text)
    self.text += text[len(known) :]
    return text[len(known) :]


class _Differs(Exception):
  """Another replica says something else."""


class _Said:
  """What was said of all answers of a stream.

  Attributes:
    begun: whether there was a message.
  """

  def __init__(self):
    self.begun = False
    self._told: dict[int, _Told] = {}
    self._losses = 0
    self._lost: errors.Unavailable | None = None

  def news(
    self, response: completion_pb2.CompleteResponse
  ) -> completion_pb2.CompleteResponse | None:
    """The part of a message that was not said yet; raises _Differs."""
    self.begun = True
    choices = [
      news
      for choice in response.choices
      if (news := self._of(choice.index).news(choice)) is not None
    ]
    if not choices and not response.HasField('usage'):
      return None
    told = completion_pb2.CompleteResponse(choices=choices)
    if response.HasField('usage'):
      told.usage.CopyFrom(response.usage)
    return told

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
      told.again = 0
      told.ids_again = 0

  def differs(self) -> errors.Unavailable:
    """The error if another replica says something else."""
    reason = '' if self._lost is None else f' ({self._lost.message})'
    return errors.Unavailable(
      f'the replica was lost in the middle of a stream{reason}, and another'
      ' one answers differently; ask again'
    )

  def _of(self, index: int) -> _Told:
    return self._told.setdefault(index, _Told())
