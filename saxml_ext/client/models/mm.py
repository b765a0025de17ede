"""Models of texts, images and sounds together, as a client sees them.

Requests and responses are those of multimodal.proto.
"""

from saxml_ext.client.transport import blocking
from saxml_ext.client.transport import data_client
from saxml_ext.client.transport import options as options_lib
from saxml_ext.protobuf import multimodal_pb2
from saxml_ext.protobuf import multimodal_pb2_grpc

_STUB = multimodal_pb2_grpc.MultimodalServiceStub
_GENERATE = data_client.Method('mm.generate', _STUB, 'Generate')
_SCORE = data_client.Method('mm.score', _STUB, 'Score')
_EMBED = data_client.Method('mm.embed', _STUB, 'Embed')


class MM(data_client.Caller):
  """The multimodal methods of a model, as coroutines; errors as `lm.LM`'s."""

  async def Generate(
    self,
    request: multimodal_pb2.GenerateRequest,
    options: options_lib.ModelOptions | None = None,
  ) -> multimodal_pb2.GenerateResponse:
    """Continues a sequence of texts, images and sounds.

    Args:
      request: its items, in order.
      options: extra inputs and the deadline.

    Returns:
      The continuations, with a score each.
    """
    message = multimodal_pb2.GenerateRpcRequest(request=request)
    return (await self._client.call_with(_GENERATE, message, options)).response

  async def Score(
    self,
    request: multimodal_pb2.ScoreRequest,
    options: options_lib.ModelOptions | None = None,
  ) -> multimodal_pb2.ScoreResponse:
    """Scores continuations of a sequence of items.

    Args:
      request: the items before, and those of each continuation.
      options: extra inputs and the deadline.

    Returns:
      The natural log-probability of each continuation.
    """
    message = multimodal_pb2.ScoreRpcRequest(request=request)
    return (await self._client.call_with(_SCORE, message, options)).response

  async def Embed(
    self,
    request: multimodal_pb2.EmbedRequest,
    options: options_lib.ModelOptions | None = None,
  ) -> multimodal_pb2.EmbedResponse:
    """Computes one embedding of a sequence of items.

    Args:
      request: The items, in order.
      options: Extra inputs and the deadline.

    Returns:
      The embedding, [D].
    """
    message = multimodal_pb2.EmbedRpcRequest(request=request)
    return (await self._client.call_with(_EMBED, message, options)).response


class BlockingMM(blocking.Wrapper[MM]):
  """The multimodal methods of a model; errors as `lm.LM`'s. Thread-safe."""

  def __init__(self, client: data_client.DataClient):
    super().__init__(MM(client))

  Generate = blocking.method(MM.Generate)
  Score = blocking.method(MM.Score)
  Embed = blocking.method(MM.Embed)
