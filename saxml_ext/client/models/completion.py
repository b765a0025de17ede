"""Completions: what of a language model Sax's own methods have no room for.

Only servers of this repository have the service, sax.completion.
"""

from collections.abc import AsyncGenerator, Sequence
import contextlib
import random
import time
from typing import Any

from saxml_ext.client.transport import data_client
from saxml_ext.client.transport import options as options_lib
from saxml_ext.common import errors
from saxml_ext.protobuf import completion_pb2
from saxml_ext.protobuf import completion_pb2_grpc

_STUB = completion_pb2_grpc.CompletionStub
_COMPLETE = data_client.Method('completion', _STUB, 'Complete')
_TOKENIZE = data_client.Method('tokenize', _STUB, 'Tokenize')
_DETOKENIZE = data_client.Method('detokenize', _STUB, 'Detokenize')
_DESCRIBE = data_client.Method('describe', _STUB, 'Describe')

# Replicas that a stream may lose: what kills them is maybe the request itself,
# which is not to kill all of them.
_MOST_LOSSES = 3
_EARLY_STOPPING = {
  True: completion_pb2.EARLY_STOPPING_TRUE,
  False: completion_pb2.EARLY_STOPPING_FALSE,
  'never': completion_pb2.EARLY_STOPPING_NEVER,
}

Prompt = str | Sequence[int]


def _request(
  model_id: str, prompt: Prompt, settings: dict[str, Any]
) -> completion_pb2.CompleteRequest:
  """Raises InvalidArgument for settings that there are not."""
  settings = dict(settings)
  early = settings.get('early_stopping')
  if isinstance(early, bool) or early == 'never':
    settings['early_stopping'] = _EARLY_STOPPING[early]
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


class Completions:
  """Methods of sax.completion, as coroutines.

  A prompt is a text, whatever the model's own form of input, or token ids,
  which are taken as they are. `settings` are fields of
  `completion_pb2.CompleteRequest`; those left out are the model's choice. Of
  `options` the deadline counts: extra inputs are Sax's way to say settings.

  Errors are those of `lm.LM`; Unimplemented: a server of stock Sax.
  """

  def __init__(self, client: data_client.DataClient):
    """Takes the requests' way to the replicas."""
    self._client = client

  async def Complete(
    self,
    prompt: Prompt,
    options: options_lib.ModelOptions | None = None,
    **settings: Any,
  ) -> completion_pb2.CompleteResponse:
    """Continues a prompt; returns all answers, best first.

    Args:
      prompt: see the class.
      options: see the class.
      **settings: such as max_tokens=16, n=2, stop=['.'], logprobs=0.
    """
    settings['stream'] = False
    request = _request(self._client.model_id, prompt, settings)
    responses = self._client.stream(_COMPLETE, request, _seconds(options))
    answer = None
    async with contextlib.aclosing(responses):
      # To its end, or the server would count a request that was given up.
      async for response in responses:
        answer = response
    if answer is None:
      raise errors.Internal('the server ended a completion without an answer')
    return answer

  async def CompleteStream(
    self,
    prompt: Prompt,
    options: options_lib.ModelOptions | None = None,
    **settings: Any,
  ) -> AsyncGenerator[completion_pb2.CompleteResponse, None]:
    """Continues a prompt and tells of the answers while they grow.

    If the replica is lost on the way, another one is asked for the same answer
    and what was said already is left out. For that samples have a seed; one is
    drawn if the settings have none. Closing the iterator before its end cancels
    the request.

    Args:
      prompt: see the class.
      options: see the class.
      **settings: as of `Complete`.

    Raises:
      Unavailable: a replica was lost after its first message, and no other one
        says the same.
    """
    settings['stream'] = True
    settings.setdefault('fallback_seed', random.getrandbits(32))
    request = _request(self._client.model_id, prompt, settings)
    seconds = _seconds(options)
    end = None if seconds is None else time.monotonic() + seconds
    said = _Said()
    while True:
      left = None if end is None else max(0.0, end - time.monotonic())
      responses = self._client.stream(_COMPLETE, request, left)
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

  async def Tokenize(
    self, text: str, options: options_lib.ModelOptions | None = None
  ) -> completion_pb2.TokenizeResponse:
    """Ids of a text, with what the model puts before a prompt."""
    request = completion_pb2.TokenizeRequest(
      model_key=self._client.model_id, text=text
    )
    return await self._client.call(_TOKENIZE, request, _seconds(options))

  async def Detokenize(
    self,
    ids: Sequence[int],
    options: options_lib.ModelOptions | None = None,
  ) -> str:
    """Text of some ids."""
    request = completion_pb2.DetokenizeRequest(
      model_key=self._client.model_id, ids=ids
    )
    response = await self._client.call(_DETOKENIZE, request, _seconds(options))
    return response.text

  async def Describe(
    self, options: options_lib.ModelOptions | None = None
  ) -> completion_pb2.DescribeResponse:
    """What may be asked of the model."""
    request = completion_pb2.DescribeRequest(model_key=self._client.model_id)
    return await self._client.call(_DESCRIBE, request, _seconds(options))


def _seconds(options: options_lib.ModelOptions | None) -> float | None:
  return options.seconds if options else None


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
