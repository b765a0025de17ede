"""The service through which followers join a group, with one stream each."""

from collections.abc import Iterator
from concurrent import futures
import hmac
import queue
import threading
from typing import Any, Protocol

from absl import logging
import grpc

from saxml_ext.common import errors
from saxml_ext.common.security import access
from saxml_ext.groups import follower_streams
from saxml_ext.groups import group_engine
from saxml_ext.protobuf import group_pb2


class Member:
  """A follower.

  Attributes:
    host: The host and number of the process.
    applied: The number of the last entry that the follower reported as applied.
  """

  def __init__(self, host: group_engine.Host):
    self.host = host
    self.applied = 0
    self._outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    self._reason = ''

  def send(self, entry: bytes) -> None:
    """Queues a serialized entry and returns at once."""
    self._outbox.put(entry)

  def close(self, reason: str = '') -> None:
    """Ends the stream after the queued entries; a reason makes it fail."""
    self._reason = reason
    self._outbox.put(None)

  def entries(self, context: grpc.ServicerContext) -> Iterator[bytes]:
    """Yields the serialized entries to send, until `close` is called."""
    while (entry := self._outbox.get()) is not None:
      yield entry
    if self._reason:
      context.abort(grpc.StatusCode.ABORTED, self._reason)


class Listener(Protocol):
  """Receives the events of followers, on the threads of their streams."""

  def joined(self, member: Member) -> None:
    """Handles a follower that has joined."""

  def answered(self, member: Member, answer: group_pb2.Answer) -> None:
    """Handles an answer from a follower."""

  def left(self, member: Member) -> None:
    """Handles the end of a follower's stream, also after `Member.close`."""


class Members(grpc.GenericRpcHandler):
  """The service that followers join; it refuses processes of other groups."""

  def __init__(self, epoch: str, num_processes: int, listener: Listener):
    """Creates the service without members.

    Args:
      epoch: The secret that only the processes of this start of the group know.
      num_processes: The number of processes, including the leader.
      listener: The object that receives the events of the followers.
    """
    self._epoch = epoch
    self._num_processes = num_processes
    self._listener = listener
    self._lock = threading.Lock()
    self._members: dict[int, Member] = {}
    # There is no response serializer, because each entry is serialized once for
    # all streams.
    self._handler = grpc.stream_stream_rpc_method_handler(
      self._follow, request_deserializer=group_pb2.Answer.FromString
    )

  def service(
    self, handler_call_details: grpc.HandlerCallDetails
  ) -> grpc.RpcMethodHandler | None:
    """Returns the handler of a method, or None if the method is unknown."""
    path = f'/{follower_streams.SERVICE}/{follower_streams.METHOD}'
    return self._handler if handler_call_details.method == path else None

  def all(self) -> list[Member]:
    """Returns the joined followers, sorted by process number."""
    with self._lock:
      return [member for _, member in sorted(self._members.items())]

  def missing(self) -> list[int]:
    """Returns the numbers of the processes that have not joined."""
    with self._lock:
      return [
        i for i in range(1, self._num_processes) if i not in self._members
      ]

  def _follow(
    self, answers: Iterator[group_pb2.Answer], context: grpc.ServicerContext
  ) -> Iterator[bytes]:
    member = self._enter(dict(context.invocation_metadata()), context)
    if not context.add_callback(lambda: self._left(member)):
      self._left(member)
      return
    threading.Thread(
      target=self._listen, args=(member, answers), daemon=True
    ).start()
    # The initial metadata inform the follower that it has joined.
    context.send_initial_metadata(())
    self._listener.joined(member)
    yield from member.entries(context)

  def _enter(
    self, metadata: dict[str, Any], context: grpc.ServicerContext
  ) -> Member:
    """Adds the caller as a member; aborts the call of an invalid caller."""
    number = metadata.get(follower_streams.PROCESS, '')
    caller = (
      f'{metadata.get(follower_streams.HOST, "?")} (process {number or "?"})'
    )
    try:
      access.check_server(context, f'joining the group as host {caller}')
    except errors.PermissionDenied as e:
      self._refuse(context, e.code, e.message)
    # The epoch is also a secret, so the comparison takes constant time.
    if not hmac.compare_digest(
      str(metadata.get(follower_streams.EPOCH, '')).encode(),
      self._epoch.encode(),
    ):
      self._refuse(
        context,
        grpc.StatusCode.PERMISSION_DENIED,
        f'host {caller} belongs to another start of the group (its epoch'
        ' differs). Restart it, so that it joins the current one.',
      )
    last = self._num_processes - 1
    if not number.isdecimal() or not 1 <= int(number) <= last:
      self._refuse(
        context,
        grpc.StatusCode.INVALID_ARGUMENT,
        f'host {caller} is not one of the followers, processes 1 to {last}.'
        ' Give each process of the group its own number.',
      )
    member = Member(
      group_engine.Host(str(metadata[follower_streams.HOST]), int(number))
    )
    with self._lock:
      known = self._members.setdefault(int(number), member)
    if known is not member:
      self._refuse(
        context,
        grpc.StatusCode.ALREADY_EXISTS,
        f'process {number} has already joined, on host {known.host.name}. Give'
        ' each process of the group its own number.',
      )
    return member

  def _refuse(
    self, context: grpc.ServicerContext, code: grpc.StatusCode, text: str
  ) -> None:
    logging.warning('group: refused a call: %s', text)
    context.abort(code, text)

  def _listen(
    self, member: Member, answers: Iterator[group_pb2.Answer]
  ) -> None:
    try:
      for answer in answers:
        self._listener.answered(member, answer)
    except grpc.RpcError:
      pass  # The stream has ended, so `_left` is called too.

  def _left(self, member: Member) -> None:
    member.close()  # This unblocks the thread of the stream.
    self._listener.left(member)


def make_server(
  members: Members, num_processes: int, silence_secs: float
) -> grpc.Server:
  """Returns the leader's server for its followers, not yet bound to a port."""
  return grpc.server(
    # Each stream occupies a thread until it ends. The other threads refuse
    # callers.
    futures.ThreadPoolExecutor(num_processes + 8, thread_name_prefix='group'),
    handlers=(members,),
    options=follower_streams.server_options(silence_secs),
  )
