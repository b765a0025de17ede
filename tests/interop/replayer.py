"""Defines a server that answers calls with recorded responses."""

from concurrent import futures
import threading

import grpc

from tests.interop import recorded


class Replayer(grpc.GenericRpcHandler):
  """A server on loopback that runs until `stop`.

  Attributes:
    address: The address, "127.0.0.1:port".
    rows: The recorded call to answer with, by method, "/sax.Admin/List".
    requests: The (method, bytes) of every call so far.
  """

  def __init__(self):
    self.rows: dict[str, recorded.Row] = {}
    self.requests: list[tuple[str, bytes]] = []
    self._changed = threading.Condition()
    self._server = grpc.server(futures.ThreadPoolExecutor(8))
    self._server.add_generic_rpc_handlers((self,))
    self.address = f'127.0.0.1:{self._server.add_insecure_port("127.0.0.1:0")}'
    self._server.start()

  def stop(self) -> None:
    self._server.stop(None).wait()

  def answer(self, row: recorded.Row) -> None:
    """Answers further calls of this row's method with the row."""
    self.rows[f'/{row.service}/{row.method}'] = row

  def service(
    self, handler_call_details: grpc.HandlerCallDetails
  ) -> grpc.RpcMethodHandler:
    method = handler_call_details.method
    # For a client, one response is the same as a stream of one response.
    return grpc.unary_stream_rpc_method_handler(
      lambda request, context: self._serve(method, request, context)
    )

  def _serve(self, method: str, request: bytes, context: grpc.ServicerContext):
    with self._changed:
      self.requests.append((method, request))
      row = self.rows.get(method)
    if row is None:
      context.abort(grpc.StatusCode.UNIMPLEMENTED, f'no row for {method}')
    for response in row.responses:
      yield response.SerializeToString()
    if row.raw_code is not grpc.StatusCode.OK:
      context.abort(row.raw_code, row.details)
