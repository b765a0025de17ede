"""Language models, as a client sees them."""

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

# (new text, length of the old text to keep, scores) of one sample.
StreamItem = tuple[str, int, list[float]]


def _texts(response: lm_pb2.GenerateResponse) -> list[tuple[str, float]]:
  return [(item.text, item.score) for item in response.texts]


def _items(response: lm_pb2.GenerateStreamResponse) -> list[StreamItem]:
  return [
    # Old servers fill the single score only.
    (item.text, item.prefix_len, list(item.scores) or [item.score])
    for item in response.items
  ]


class LM(data_client.Caller):
  """The language methods of a model, as coroutines.

  `options` carry extra inputs and the deadline. Without them, a request has
  neither.

  Only servers of this repository have the methods from `Complete` on. Their
  prompt is a text, whatever the model's own form of input, or token ids. They
  take `settings` instead of extra inputs: fields of
  `completion_pb2.CompleteRequest`. The model chooses those left out.

  Every method raises `SaxError`, among them:
    InvalidArgument: the model's id is malformed, or the server does not take
      the request (an extra input that the model lacks, a prompt too long).
    NotFound: the model is not published.
    FailedPrecondition: no replica can answer, and waiting for one is of no use;
      the text says why.
    DeadlineExceeded: time was up; the text has the last error before it.
    Unimplemented: the model or its server has no such method.
    PermissionDenied, Internal: the server's answer.
  """

  async def Score(
    self,
    prefix: str,
    suffix: Sequence[str],
    options: options_lib.ModelOptions | None = None,
  ) -> list[float]:
    """Scores continuations of a prompt.

    Args:
      prefix: the prompt, not empty for most models.
      suffix: N continuations of it; most servers take one at a time.
      options: The options, see the class.

    Returns:
      [N]: log p(suffix | prefix), natural, summed over the suffix's tokens.
      Models can be set up to give several numbers per suffix.
    """
    request = lm_pb2.ScoreRequest(suffix=suffix, prefix=prefix)
    response = await self._call(_SCORE, request, options)
    return list(response.logp)

  async def Generate(
    self, text: str, options: options_lib.ModelOptions | None = None
  ) -> list[tuple[str, float]]:
    """Continues a prompt.

    Args:
      text: the prompt; for a tokenized model its token ids, "1,2,3".
      options: The options, see the class.

    Returns:
      (text, score) per sample or beam, in the server's order. The score is the
      natural log-probability of the text, as the serving params normalize it.
    """
    request = lm_pb2.GenerateRequest(text=text)
    return _texts(await self._call(_GENERATE, request, options))

  async def GenerateStream(
    self, text: str, options: options_lib.ModelOptions | None = None
  ) -> AsyncGenerator[list[StreamItem], None]:
    """Continues a prompt and tells the text while it grows.

    An error after the first message is final; what came before is then all
    there is. Closing the iterator (`aclose`, or cancelling the task that reads
    it) cancels the request.

    Yields:
      One item per sample: (new text, bytes of its text so far, in UTF-8, to
      keep before it, scores of the new text by kind).
    """
    options = options or options_lib.ModelOptions()
    request = lm_pb2.GenerateRequest(
      model_key=self._client.model_id, text=text, extra_inputs=options.ToProto()
    )
    responses = self._client.stream(_STREAM, request, options.seconds)
    async with contextlib.aclosing(responses):
      async for response in responses:
        yield _items(response)

  async def Embed(
    self, text: str, options: options_lib.ModelOptions | None = None
  ) -> list[float]:
    """Returns the text's embedding, [D]."""
    request = lm_pb2.EmbedRequest(text=text)
    response = await self._call(_EMBED, request, options)
    return list(response.embedding)

  async def Gradient(
    self,
    prefix: str,
    suffix: str,
    options: options_lib.ModelOptions | None = None,
  ) -> tuple[list[float], dict[str, list[float]]]:
    """Differentiates the score of a continuation.

    Args:
      prefix: the prompt.
      suffix: its continuation.
      options: The options, see the class.

    Returns:
      The scores as of `Score`, and the gradients of log p(suffix | prefix):
      tensor name -> its values, flat in row-major order.
    """
    request = lm_pb2.GradientRequest(suffix=suffix, prefix=prefix)
    response = await self._call(_GRADIENT, request, options)
    gradients = {
      name: list(gradient.values)
      for name, gradient in response.gradients.items()
    }
    return list(response.score), gradients

  async def Complete(
    self,
    prompt: completion.Prompt,
    options: options_lib.ModelOptions | None = None,
    **settings: Any,
  ) -> completion_pb2.CompleteResponse:
    """Continues a prompt; returns all answers, best first.

    Args:
      prompt: The prompt, see the class.
      options: The options, see the class.
      **settings: such as max_tokens=16, n=2, stop=['.'], logprobs=0.
    """
    settings['stream'] = False
    request = completion.request(self._client.model_id, prompt, settings)
    answer = None
    responses = self._client.stream(
      completion.COMPLETE, request, options_lib.timeout_of(options)
    )
    async with contextlib.aclosing(responses):
      # To its end, or the server would count a request that was given up.
      async for response in responses:
        answer = response
    if answer is None:
      raise errors.Internal('the server ended a completion without an answer')
    return answer

  def CompleteStream(
    self,
    prompt: completion.Prompt,
    options: options_lib.ModelOptions | None = None,
    **settings: Any,
  ) -> AsyncGenerator[completion_pb2.CompleteResponse, None]:
    """Continues a prompt and yields the answers while they grow.

    If the replica is lost on the way, another one is asked for the same answer,
    and what was yielded already is left out. Samples need a seed for that. One
    is drawn if the settings have none. Closing the iterator before its end
    cancels the request.

    Args:
      prompt: The prompt, see the class.
      options: The options, see the class.
      **settings: The settings, see `Complete`.

    Raises:
      Unavailable: a replica was lost after its first message, and no other one
        answers the same.
    """
    timeout = options_lib.timeout_of(options)
    return completion.stream(self._client, prompt, settings, timeout)

  async def Tokenize(
    self, text: str, options: options_lib.ModelOptions | None = None
  ) -> completion_pb2.TokenizeResponse:
    """Returns a text's ids, with what the model puts before a prompt."""
    request = completion_pb2.TokenizeRequest(text=text)
    return await self._client.call(completion.TOKENIZE, request, options)

  async def Detokenize(
    self, ids: Sequence[int], options: options_lib.ModelOptions | None = None
  ) -> str:
    """Returns the text of some ids."""
    request = completion_pb2.DetokenizeRequest(ids=ids)
    response = await self._client.call(completion.DETOKENIZE, request, options)
    return response.text

  async def Describe(
    self, options: options_lib.ModelOptions | None = None
  ) -> completion_pb2.DescribeResponse:
    """Returns what may be asked of the model."""
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
    self, text: str, options: options_lib.ModelOptions | None = None
  ) -> futures.Future[list[tuple[str, float]]]:
    """Continues a prompt as `Generate` does, without waiting.

    Thousands of requests can be in flight, none needs a thread.

    Returns:
      A future of what `Generate` returns; it raises what `Generate` raises.
      Cancelling it cancels the request.
    """
    return callbacks.start(self._not_waiting.Generate(text, options))

  @functools.cached_property
  def _not_waiting(self) -> LM:
    return LM(self._client.over(callbacks.transport))

  def GenerateStream(
    self,
    text: str,
    callback: Callable[[bool, list[StreamItem]], None],
    options: options_lib.ModelOptions | None = None,
  ) -> None:
    """Continues a prompt and tells the text while it grows.

    Args:
      text: the prompt.
      callback: called in this thread with (False, items) per message, items as
        `LM.GenerateStream` yields them; at the end once with (True, []).
      options: The options, see the class.
    """
    stream = self._coroutines.GenerateStream(text, options)
    for items in blocking.iterate(stream):
      callback(False, items)
    callback(True, [])

  def CompleteStream(
    self,
    prompt: completion.Prompt,
    options: options_lib.ModelOptions | None = None,
    **settings: Any,
  ) -> Iterator[completion_pb2.CompleteResponse]:
    """Returns an iterator over what `LM.CompleteStream` yields."""
    return blocking.iterate(
      self._coroutines.CompleteStream(prompt, options, **settings)
    )
