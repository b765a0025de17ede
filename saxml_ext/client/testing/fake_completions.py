"""A completion server for tests that sends canned messages."""

from collections.abc import Sequence
import dataclasses
import threading

from saxml_ext.client.testing import fake_cell
from saxml_ext.common import errors
from saxml_ext.protobuf import completion_pb2
from saxml_ext.protobuf import completion_pb2_grpc


@dataclasses.dataclass(frozen=True)
class Failure:
  """The failure that ends a call.

  Attributes:
    error: The error that the call fails with.
    after: The number of messages that the client must pass on before the
      failure.
  """

  error: errors.SaxError
  after: int = 0


class FakeCompletions(completion_pb2_grpc.CompletionServicer):
  """A replica.

  Attributes:
    address: The address, "host:port".
    requests: The received Complete requests.
    streams: The canned messages of each Complete call. Further calls use the
      last entry again.
    sent: The semaphore to release once for each message that the client has
      passed on.
  """

  def __init__(
    self, *streams: Sequence[completion_pb2.CompleteResponse | Failure]
  ):
    self.requests: list[completion_pb2.CompleteRequest] = []
    self.streams = list(streams)
    self.sent = threading.Semaphore(0)
    self._server = fake_cell.Server(
      completion_pb2_grpc.add_CompletionServicer_to_server,
      self,
      wrap_text=False,
    )
    self.address = self._server.address

  def stop(self) -> None:
    self._server.stop()

  def Complete(self, request, context):
    self.requests.append(request)
    number = min(len(self.requests), len(self.streams)) - 1
    for message in self.streams[number]:
      if isinstance(message, Failure):
        # When a call fails, gRPC may drop messages that were not read yet.
        for _ in range(message.after):
          self.sent.acquire(timeout=fake_cell.PATIENCE)
        raise message.error
      yield message

  def Tokenize(self, request, context):
    return completion_pb2.TokenizeResponse(ids=map(ord, request.text))

  def Detokenize(self, request, context):
    return completion_pb2.DetokenizeResponse(
      text=''.join(map(chr, request.ids))
    )

  def Describe(self, request, context):
    return completion_pb2.DescribeResponse(max_prompt=7)
