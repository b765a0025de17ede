"""The Completion service of a model's replicas, from an event loop."""

from collections.abc import AsyncGenerator

from saxml_ext.client.transport import asynchronous
from saxml_ext.client.transport import data_client
from saxml_ext.client.transport import options as options_lib
from saxml_ext.protobuf import completion_pb2
from saxml_ext.protobuf import completion_pb2_grpc

_STUB = completion_pb2_grpc.CompletionStub
_COMPLETE = data_client.Method('lm.generate', _STUB, 'Complete')
_TOKENIZE = data_client.Method('tokenize', _STUB, 'Tokenize')
_DETOKENIZE = data_client.Method('detokenize', _STUB, 'Detokenize')
_DESCRIBE = data_client.Method('describe', _STUB, 'Describe')


class CompletionCalls:
  """A model's methods. All raise `errors.SaxError`."""

  def __init__(self, model_id: str):
    """`model_id` is "/sax/<cell>/<model>"."""
    # A full replica is for the client of the gateway to know of: whoever
    # waits here holds a connection and a place that others could have.
    options = options_lib.Options(wait_if_full=False)
    self._client = data_client.DataClient(
      model_id, options, asynchronous.transport
    )

  def complete(
    self, request: completion_pb2.CompleteRequest, timeout: float
  ) -> AsyncGenerator[completion_pb2.CompleteResponse, None]:
    """Continues a prompt; closing the iterator cancels it in the cell."""
    return self._client.stream(_COMPLETE, request, timeout)

  async def tokenize(
    self, text: str, timeout: float
  ) -> completion_pb2.TokenizeResponse:
    """Text to ids."""
    request = completion_pb2.TokenizeRequest(
      model_key=self._client.model_id, text=text
    )
    return await self._client.call(_TOKENIZE, request, timeout)

  async def detokenize(
    self, ids: list[int], timeout: float
  ) -> completion_pb2.DetokenizeResponse:
    """Ids to text."""
    request = completion_pb2.DetokenizeRequest(
      model_key=self._client.model_id, ids=ids
    )
    return await self._client.call(_DETOKENIZE, request, timeout)

  async def describe(self, timeout: float) -> completion_pb2.DescribeResponse:
    """What may be asked of the model."""
    request = completion_pb2.DescribeRequest(model_key=self._client.model_id)
    return await self._client.call(_DESCRIBE, request, timeout)
