"""Language models, as a client sees them."""

from collections.abc import Callable, Sequence
from concurrent import futures

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


def _scores(item: lm_pb2.GenerateStreamItem) -> list[float]:
  # Old servers fill the single score only.
  return list(item.scores) or [item.score]


class LM:
  """The language methods of a model.

  Thread-safe. `options` carry extra inputs and the deadline. Every method
  raises `SaxError`: NotFound if the model is not published, DeadlineExceeded
  with the last error before it, else the model server's answer.
  """

  def __init__(self, client: data_client.DataClient):
    self._client = client

  def Score(
      self,
      prefix: str,
      suffixes: Sequence[str],
      options: options_lib.ModelOptions | None = None,
  ) -> list[float]:
    """log p(suffix | prefix), natural, per suffix."""
    options = options or options_lib.ModelOptions()
    request = lm_pb2.ScoreRequest(
        model_key=self._client.model_id,
        suffix=suffixes,
        prefix=prefix,
        extra_inputs=options.ToProto(),
    )
    timeout = options_lib.seconds(options.GetTimeout())
    return list(self._client.call(_SCORE, request, timeout).logp)

  def Generate(
      self, text: str, options: options_lib.ModelOptions | None = None
  ) -> list[tuple[str, float]]:
    """Continues a prompt.

    Returns:
      (text, score) per sample or beam, in the server's order.
    """
    request, timeout = self._generate_request(text, options)
    return _texts(self._client.call(_GENERATE, request, timeout))

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
    return self._client.call_async(_GENERATE, request, timeout, _texts)

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
    request, timeout = self._generate_request(text, options)
    for response in self._client.call_stream(_STREAM, request, timeout):
      items = [
          (item.text, item.prefix_len, _scores(item)) for item in response.items
      ]
      callback(False, items)
    callback(True, [])

  def Embed(
      self, text: str, options: options_lib.ModelOptions | None = None
  ) -> list[float]:
    """The text's embedding."""
    options = options or options_lib.ModelOptions()
    request = lm_pb2.EmbedRequest(
        model_key=self._client.model_id,
        text=text,
        extra_inputs=options.ToProto(),
    )
    timeout = options_lib.seconds(options.GetTimeout())
    return list(self._client.call(_EMBED, request, timeout).embedding)

  def Gradient(
      self,
      prefix: str,
      suffix: str,
      options: options_lib.ModelOptions | None = None,
  ) -> tuple[list[float], dict[str, list[float]]]:
    """log p(suffix | prefix) and its gradients: tensor name -> flat values."""
    options = options or options_lib.ModelOptions()
    request = lm_pb2.GradientRequest(
        model_key=self._client.model_id,
        suffix=suffix,
        prefix=prefix,
        extra_inputs=options.ToProto(),
    )
    timeout = options_lib.seconds(options.GetTimeout())
    response = self._client.call(_GRADIENT, request, timeout)
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
    return request, options_lib.seconds(options.GetTimeout())
