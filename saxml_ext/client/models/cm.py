"""Models with methods of their own, as a client sees them."""

from saxml_ext.client.transport import blocking
from saxml_ext.client.transport import data_client
from saxml_ext.client.transport import options as options_lib
from saxml_ext.common import errors
from saxml_ext.protobuf import custom_pb2
from saxml_ext.protobuf import custom_pb2_grpc


class CM(data_client.Caller):
  """The custom methods of a model, as coroutines; errors as `lm.LM`'s."""

  async def Custom(
    self,
    request: data_client.Content,
    method_name: str,
    options: options_lib.ModelOptions | None = None,
  ) -> bytes:
    """Calls a method of the model's own.

    Args:
      request: what the method takes, encoded as it wants.
      method_name: its name, as the model registered it.
      options: extra inputs and the deadline.

    Returns:
      The method's answer, encoded as it likes.
    """
    method = data_client.Method(
      method_name, custom_pb2_grpc.CustomServiceStub, 'Custom'
    )
    message = custom_pb2.CustomRequest(
      request=data_client.to_bytes(request), method_name=method_name
    )
    return (await self._client.call_with(method, message, options)).response

  async def CustomNoException(
    self,
    request: data_client.Content,
    method_name: str,
    options: options_lib.ModelOptions | None = None,
  ) -> bytes | errors.SaxError:
    """As `Custom`, but returns the error instead of raising it."""
    try:
      return await self.Custom(request, method_name, options)
    except errors.SaxError as e:
      return e


class BlockingCM(blocking.Wrapper[CM]):
  """The custom methods of a model; errors as `lm.LM`'s. Thread-safe."""

  def __init__(self, client: data_client.DataClient):
    super().__init__(CM(client))

  Custom = blocking.method(CM.Custom)
  CustomNoException = blocking.method(CM.CustomNoException)
