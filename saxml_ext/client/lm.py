"""Language models, as a client sees them."""

from collections.abc import AsyncIterator, Callable, Sequence
from concurrent import futures
import contextlib

from saxml_ext.client import blocking
from saxml_ext.client import data_client
from saxml_ext.client import options as options_lib
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
      (item.text, item.prefix_len, _scores(item)) for item in response.items
  ]


def _scores(item: lm_pb2.GenerateStreamItem) -> list[float]:
  # Old servers fill the single score only.
  return list(item.scores) or [item.score]


class LM:
  """The language methods of a model, as coroutines.

  `options` carry extra inputs and the deadline. Every method raises
  `SaxError`: NotFound if the model is not published, DeadlineExceeded with the
  last error before it, else the model server's answer.
  """

  def __init__(self, client: data_client.DataClient):
    self._client = client

  async def Score(
      self,
      prefix: str,
      suffix: Sequence[str],
      options: options_lib.ModelOptions | None = None,
  ) -> list[float]:
    """log p(suffix | prefix), natural, per suffix."""
    request = lm_pb2.ScoreRequest(suffix=suffix, prefix=prefix)
    response = await self._client.call_with(_SCORE, request, options)
    return list(response.logp)

  async def Generate(
      self, text: str, options: options_lib.ModelOptions | None = None
  ) -> list[tuple[str, float]]:
    """Continues a prompt.

    Returns:
      (text, score) per sample or beam, in the server's order.
    """
    request = lm_pb2.GenerateRequest(text=text)
    return _texts(await self._client.call_with(_GENERATE, request, options))

  async def GenerateStream(
      self, text: str, options: options_lib.ModelOptions | None = None
  ) -> AsyncIterator[list[StreamItem]]:
    """Continues a prompt and tells the text while it grows.

    Closing the iterator (`aclose`, or cancelling the task that reads it)
    cancels the request.

    Yields:
      One item per sample: (new text, bytes of its text so far to keep before
      it, scores).
    """
    request, timeout = self._generate_request(text, options)
    responses = self._client.stream(_STREAM, request, timeout)
    async with contextlib.aclosing(responses):
      async for response in responses:
        yield _items(response)

  async def Embed(
      self, text: str, options: options_lib.ModelOptions | None = None
  ) -> list[float]:
    """The text's embedding."""
    request = lm_pb2.EmbedRequest(text=text)
    response = await self._client.call_with(_EMBED, request, options)
    return list(response.embedding)

  async def Gradient(
      self,
      prefix: str,
      suffix: str,
      options: options_lib.ModelOptions | None = None,
  ) -> tuple[list[float], dict[str, list[float]]]:
    """log p(suffix | prefix) and its gradients: tensor name -> flat values."""
    request = lm_pb2.GradientRequest(suffix=suffix, prefix=prefix)
    response = await self._client.call_with(_GRADIENT, request, options)
    gradients = {
        name: list(gradient.values)
        for name, gradient in response.gradients.items()
    }
    return list(response.score), gradients

  def _generate_request(
      self, text: str, options: options_lib.ModelOptions | None
  ) -> tuple[lm_pb2.GenerateRequest, float | None]:
    options = options or options_lib.ModelOptions()
    request = lm_pb2.GenerateRequest(
        model_key=self._client.model_id,
        text=text,
        extra_inputs=options.ToProto(),
    )
    return request, options.seconds


class BlockingLM(LM):
  """The language methods of a model.

  Thread-safe. `options` carry extra inputs and the deadline. Every method
  raises `SaxError`: NotFound if the model is not published, DeadlineExceeded
  with the last error before it, else the model server's answer.
  """

  Score = blocking.of(LM.Score)
  Generate = blocking.of(LM.Generate)
  Embed = blocking.of(LM.Embed)
  Gradient = blocking.of(LM.Gradient)

  def GenerateAsync(
      self, text: str, options: options_lib.ModelOptions | None = None
  ) -> futures.Future:
    """As `Generate`, without waiting.

    Thousands of requests can be in flight, none needs a thread.

    Returns:
      A future of what `Generate` returns; it raises what `Generate` raises.
      Cancelling it cancels the request.
    """
    request, timeout = self._generate_request(text, options)
    return self._client.future(_GENERATE, request, timeout, _texts)

  def GenerateStream(
      self,
      text: str,
      callback: Callable[[bool, list[StreamItem]], None],
      options: options_lib.ModelOptions | None = None,
  ) -> None:
    """Continues a prompt and tells the text while it grows.

    Args:
      text: the prompt.
      callback: called with (False, items) per message, one item per sample:
        (new text, bytes of its text so far to keep before it, scores); at the
        end once with (True, []).
      options: see the class.
    """
    for items in blocking.iterate(super().GenerateStream(text, options)):
      callback(False, items)
    callback(True, [])
