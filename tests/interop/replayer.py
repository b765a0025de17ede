"""A server that answers any call with what was recorded."""

from concurrent import futures
import threading

import grpc

from tests.interop import recorded


class Replayer(grpc.GenericRpcHandler):
  """Serves on loopback until `stop`.

  Attributes:
    address: "127.0.0.1:port".
    rows: "/sax.Admin/List" -> the recorded call to answer with.
    requests: (method, bytes) of every call so far.
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
    """Answers calls of this row's method with it from now on."""
    self.rows[f'/{row.service}/{row.method}'] = row

  def service(
    self, handler_call_details: grpc.HandlerCallDetails
  ) -> grpc.RpcMethodHandler:
    method = handler_call_details.method
    # For the client's side, one response is a stream of one.
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
