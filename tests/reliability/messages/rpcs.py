"""Lists every RPC that a server reports by reflection."""

from collections.abc import Sequence
import dataclasses

from google.protobuf import descriptor
from google.protobuf import descriptor_pool
import grpc
from grpc_health.v1 import health_pb2  # noqa: F401 Registers or sets up.
from grpc_reflection.v1alpha import reflection_pb2
from grpc_reflection.v1alpha import reflection_pb2_grpc

from saxml_ext.common import grpc_util
from saxml_ext.protobuf import admin_pb2  # noqa: F401 Registers or sets up.
from saxml_ext.protobuf import completion_pb2  # noqa: F401 Registers messages.
from saxml_ext.protobuf import lm_pb2  # noqa: F401 Registers or sets up.
from saxml_ext.protobuf import modelet_pb2  # noqa: F401 Registers or sets up.

_SECS = 30.0


@dataclasses.dataclass(frozen=True)
class Rpc:
  """A method of a service.

  Attributes:
    path: The path, such as "/sax.Admin/List".
    request: The type of its requests.
    takes_stream: True if it takes several requests.
    gives_stream: True if it sends several responses.
  """

  path: str
  request: descriptor.Descriptor
  takes_stream: bool
  gives_stream: bool


def list_rpcs(address: str) -> list[Rpc]:
  """Returns all methods of all services that a server's reflection lists.

  Raises:
    KeyError: The module of a service's messages is not imported above.
    grpc.RpcError: The server does not answer.
  """
  return [rpc for name in services(address) for rpc in _methods(name)]


def services(address: str) -> Sequence[str]:
  """Returns the full names of a server's services."""
  with grpc_util.channel(address) as channel:
    stub = reflection_pb2_grpc.ServerReflectionStub(channel)
    request = reflection_pb2.ServerReflectionRequest(list_services='')
    (answer,) = stub.ServerReflectionInfo(iter([request]), timeout=_SECS)
  return [service.name for service in answer.list_services_response.service]


def _methods(name: str) -> list[Rpc]:
  service = descriptor_pool.Default().FindServiceByName(name)
  return [
    Rpc(
      f'/{name}/{method.name}',
      method.input_type,
      method.client_streaming,
      method.server_streaming,
    )
    for method in service.methods
  ]


async def invoke(
  channel: grpc.aio.Channel, rpc: Rpc, data: bytes, timeout: float
) -> tuple[grpc.StatusCode, str]:
  """Sends bytes as the request of a method, and reads all answers.

  Returns:
    The status code and the error text of the call.
  """
  call: grpc.aio.Call
  if rpc.takes_stream:
    call = channel.stream_stream(rpc.path)(iter([data]), timeout=timeout)
  elif rpc.gives_stream:
    call = channel.unary_stream(rpc.path)(data, timeout=timeout)
  else:
    call = channel.unary_unary(rpc.path)(data, timeout=timeout)
  try:
    if rpc.gives_stream:
      while await call.read() is not grpc.aio.EOF:
        pass
    return await call.code(), await call.details() or ''
  except grpc.aio.AioRpcError as e:
    return e.code(), e.details() or ''
