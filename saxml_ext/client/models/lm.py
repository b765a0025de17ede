"""Sends requests to language models."""

from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from concurrent import futures
import contextlib
import functools
from typing import Any

from saxml_ext.client.models import completion
from saxml_ext.client.transport import blocking
from saxml_ext.client.transport import callbacks
from saxml_ext.client.transport import data_client
from saxml_ext.client.transport import options as options_lib
from saxml_ext.common import errors
from saxml_ext.protobuf import completion_pb2
from saxml_ext.protobuf import lm_pb2
from saxml_ext.protobuf import lm_pb2_grpc

_STUB = lm_pb2_grpc.LMServiceStub
_SCORE = data_client.Method('lm.score', _STUB, 'Score')
_GENERATE = data_client.Method('lm.generate', _STUB, 'Generate')
_STREAM = data_client.Method('lm.generate_stream', _STUB, 'GenerateStream')
_EMBED = data_client.Method('lm.embed', _STUB, 'Embed')
_GRADIENT = data_client.Method('lm.gradient', _STUB, 'Gradient')

# Options of a request; None for no extra inputs and no deadline.
_Options = options_lib.ModelOptions | None

# The (new text, length of the old text to keep, scores) of one sample.
StreamItem = tuple[str, int, list[float]]


def _texts(response: lm_pb2.GenerateResponse) -> list[tuple[str, float]]:
  return [(item.text, item.score) for item in response.texts]


def _items(response: lm_pb2.GenerateStreamResponse) -> list[StreamItem]:
  return [
    # Old servers fill only the single score.
    (item.text, item.prefix_len, list(item.scores) or [item.score])
    for item in response.items
  ]


class LM(data_client.Caller):
  """The language methods of a model, as coroutines.

  `options` carry extra inputs and the deadline. Without `options`, a request
  has neither.

  Only servers of this repository have `Complete` and the methods after it.
  Their prompt is either a text or token ids, whatever input the model itself
  expects. They take `settings` instead of extra inputs. The settings are fields
  of `completion_pb2.CompleteRequest`. The model chooses the settings that are
  left out.

  Every method raises `SaxError`, among them:
    InvalidArgument: The model's id is malformed, or the server rejects the
      request. Examples are an unknown extra input and a prompt that is too
      long.
    NotFound: The model is not published.
    FailedPrecondition: No replica can answer, and waiting does not help. The
      message has the reason.
    DeadlineExceeded: The deadline passed. The message has the last error before
      it.
    Unimplemented: The model or its server has no such method.
    PermissionDenied, Internal: The server answered with this error.
  """

  async def Score(
    self, prefix: str, suffix: Sequence[str], options: _Options = None
  ) -> list[float]:
    """Scores continuations of a prompt.

    Args:
      prefix: The prompt, which must not be empty for most models.
      suffix: The N continuations; most servers accept one at a time.
      options: The options, see the class.

    Returns:
      The scores, [N]: the natural log-probabilities log p(suffix | prefix),
      summed over the tokens of the suffix. A model can be configured to return
      several numbers per suffix.
    """
    request = lm_pb2.ScoreRequest(suffix=suffix, prefix=prefix)
    response = await self._call(_SCORE, request, options)
    return list(response.logp)

  async def Generate(
    self, text: str, options: _Options = None
  ) -> list[tuple[str, float]]:
    """Continues a prompt.

    Args:
      text: The prompt; for a model without a tokenizer its token ids, "1,2,3".
      options: The options, see the class.

    Returns:
      A (text, score) pair per sample or beam, in the server's order. The score
      is the natural log-probability of the text, normalized as the serving
      params define it.
    """
    request = lm_pb2.GenerateRequest(text=text)
    return _texts(await self._call(_GENERATE, request, options))

  async def GenerateStream(
    self, text: str, options: _Options = None
  ) -> AsyncGenerator[list[StreamItem], None]:
    """Continues a prompt and yields the text while it grows.

    An error after the first message is final, and no further text follows.
    Closing the iterator cancels the request. `aclose` closes it, and so does
    cancelling the task that reads it.

    Yields:
      One item per sample: the new text, the number of UTF-8 bytes of the old
        text to keep before it, and the scores of the new text by kind.
    """
    options = options or options_lib.ModelOptions()
    request = lm_pb2.GenerateRequest(
      model_key=self._client.model_id, text=text, extra_inputs=options.ToProto()
    )
    responses = self._client.stream(_STREAM, request, options.seconds)
    async with contextlib.aclosing(responses):
      async for response in responses:
        yield _items(response)

  async def Embed(self, text: str, options: _Options = None) -> list[float]:
    """Returns the embedding of a text, [D]."""
    response = await self._call(_EMBED, lm_pb2.EmbedRequest(text=text), options)
    return list(response.embedding)

  async def Gradient(
    self, prefix: str, suffix: str, options: _Options = None
  ) -> tuple[list[float], dict[str, list[float]]]:
    """Computes the gradients of the score of a continuation.

    Args:
      prefix: The prompt.
      suffix: The continuation.
      options: The options, see the class.

    Returns:
      The scores that `Score` returns, and the gradients of log p(suffix |
      prefix). The gradients map each tensor name to its values, flat in
      row-major order.
    """
    request = lm_pb2.GradientRequest(suffix=suffix, prefix=prefix)
    response = await self._call(_GRADIENT, request, options)
    gradients = {
      name: list(gradient.values)
      for name, gradient in response.gradients.items()
    }
    return list(response.score), gradients

  async def Complete(
    self, prompt: completion.Prompt, options: _Options = None, **settings: Any
  ) -> completion_pb2.CompleteResponse:
    """Continues a prompt; returns all answers, best first.

    Args:
      prompt: The prompt, see the class.
      options: The options, see the class.
      **settings: The settings, for example max_tokens=16, n=2, stop=['.'] or
        logprobs=0.
    """
    settings['stream'] = False
    request = completion.request(self._client.model_id, prompt, settings)
    answer = None
    responses = self._client.stream(
      completion.COMPLETE, request, options_lib.timeout_of(options)
    )
    async with contextlib.aclosing(responses):
      # Reads to the end. Otherwise the server would count the request as
      # cancelled.
      async for response in responses:
        answer = response
    if answer is None:
      raise errors.Internal('the server ended a completion without an answer')
    return answer

  def CompleteStream(
    self, prompt: completion.Prompt, options: _Options = None, **settings: Any
  ) -> AsyncGenerator[completion_pb2.CompleteResponse, None]:
    """Continues a prompt and yields the answers while they grow.

    If the replica is lost during the stream, the same request goes to another
    one. Parts that were already yielded are left out. Samples need a seed to
    repeat. If the settings have none, a seed is drawn. Closing the iterator
    before its end cancels the request.

    Args:
      prompt: The prompt, see the class.
      options: The options, see the class.
      **settings: The settings, see `Complete`.

    Raises:
      Unavailable: A replica was lost after its first message, and no other
        replica gives the same answer.
    """
    timeout = options_lib.timeout_of(options)
    return completion.stream(self._client, prompt, settings, timeout)

  async def Tokenize(
    self,
    text: str | completion_pb2.Segments,
    options: _Options = None,
    add_special_tokens: bool = True,
  ) -> completion_pb2.TokenizeResponse:
    """Returns the token ids of a text.

    Args:
      text: The text, or its segments.
      options: The options of the call.
      add_special_tokens: True to add the model's start id, as to prompts.
    """
    request = completion_pb2.TokenizeRequest(
      add_special_tokens=add_special_tokens
    )
    if isinstance(text, str):
      request.text = text
    else:
      request.segments.CopyFrom(text)
    return await self._client.call(completion.TOKENIZE, request, options)

  async def Detokenize(
    self, ids: Sequence[int], options: _Options = None
  ) -> str:
    """Returns the text of a list of token ids."""
    request = completion_pb2.DetokenizeRequest(ids=ids)
    response = await self._client.call(completion.DETOKENIZE, request, options)
    return response.text

  async def Describe(
    self, options: _Options = None
  ) -> completion_pb2.DescribeResponse:
    """Returns the model's limits and the settings that it accepts."""
    request = completion_pb2.DescribeRequest()
    return await self._client.call(completion.DESCRIBE, request, options)


class BlockingLM(blocking.Wrapper[LM]):
  """The language methods of a model. Thread-safe.

  Arguments, results and errors are those of `LM`.
  """

  COROUTINES = LM

  Score = blocking.method(LM.Score)
  Generate = blocking.method(LM.Generate)
  Embed = blocking.method(LM.Embed)
  Gradient = blocking.method(LM.Gradient)
  Complete = blocking.method(LM.Complete)
  Tokenize = blocking.method(LM.Tokenize)
  Detokenize = blocking.method(LM.Detokenize)
  Describe = blocking.method(LM.Describe)

  def GenerateAsync(
    self, text: str, options: _Options = None
  ) -> futures.Future[list[tuple[str, float]]]:
    """Continues a prompt as `Generate` does, without waiting.

    Thousands of requests can be in flight, because none needs a thread.

    Returns:
      A future with the result or the error of `Generate`. Cancelling the future
      cancels the request.
    """
    return callbacks.start(self._not_waiting.Generate(text, options))

  @functools.cached_property
  def _not_waiting(self) -> LM:
    return LM(self._client.over(callbacks.transport))

  def GenerateStream(
    self,
    text: str,
    callback: Callable[[bool, list[StreamItem]], None],
    options: _Options = None,
  ) -> None:
    """Continues a prompt and reports the text while it grows.

    Args:
      text: The prompt.
      callback: The function that receives the text. It is called in this thread
        with (False, items) for each message, with the items that
        `LM.GenerateStream` yields. At the end it is called once with (True,
        []).
      options: The options, see the class.
    """
    stream = self._coroutines.GenerateStream(text, options)
    for items in blocking.iterate(stream):
      callback(False, items)
    callback(True, [])

  def CompleteStream(
    self, prompt: completion.Prompt, options: _Options = None, **settings: Any
  ) -> Iterator[completion_pb2.CompleteResponse]:
    """Returns an iterator over the responses of `LM.CompleteStream`."""
    return blocking.iterate(
      self._coroutines.CompleteStream(prompt, options, **settings)
    )
