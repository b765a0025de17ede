"""Models of texts, images and sounds together, as a client sees them.

Requests and responses are those of multimodal.proto.
"""

from saxml_ext.client import blocking
from saxml_ext.client import data_client
from saxml_ext.client import options as options_lib
from saxml_ext.protobuf import multimodal_pb2
from saxml_ext.protobuf import multimodal_pb2_grpc

_STUB = multimodal_pb2_grpc.MultimodalServiceStub
_GENERATE = data_client.Method('mm.generate', _STUB, 'Generate')
_SCORE = data_client.Method('mm.score', _STUB, 'Score')


class MM:
  """The multimodal methods of a model, as coroutines; errors as `lm.LM`'s."""

  def __init__(self, client: data_client.DataClient):
    self._client = client

  async def Generate(
      self,
      request: multimodal_pb2.GenerateRequest,
      options: options_lib.ModelOptions | None = None,
  ) -> multimodal_pb2.GenerateResponse:
    """Continues a sequence of items."""
    message = multimodal_pb2.GenerateRpcRequest(request=request)
    return (await self._client.call_with(_GENERATE, message, options)).response

  async def Score(
      self,
      request: multimodal_pb2.ScoreRequest,
      options: options_lib.ModelOptions | None = None,
  ) -> multimodal_pb2.ScoreResponse:
    """log p(suffix items | prefix items)."""
    message = multimodal_pb2.ScoreRpcRequest(request=request)
    return (await self._client.call_with(_SCORE, message, options)).response


class BlockingMM(MM):
  """The multimodal methods of a model; errors as `lm.BlockingLM`'s."""

  Generate = blocking.of(MM.Generate)
  Score = blocking.of(MM.Score)
