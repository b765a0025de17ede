"""The followers of a group as their leader sees them: one stream each."""

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
    host: where it runs.
    applied: number of the last entry that it is known to have applied.
  """

  def __init__(self, host: group_engine.Host):
    self.host = host
    self.applied = 0
    self._outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    self._reason = ''

  def send(self, entry: bytes) -> None:
    """Queues a serialized entry; returns at once."""
    self._outbox.put(entry)

  def close(self, reason: str = '') -> None:
    """Ends the stream after what is queued; with a reason, as a failure."""
    self._reason = reason
    self._outbox.put(None)

  def entries(self, context: grpc.ServicerContext) -> Iterator[bytes]:
    """What the stream carries, until `close`."""
    while (entry := self._outbox.get()) is not None:
      yield entry
    if self._reason:
      context.abort(grpc.StatusCode.ABORTED, self._reason)


class Listener(Protocol):
  """Hears what followers do, on the threads of their streams."""

  def joined(self, member: Member) -> None:
    """A follower is there."""

  def answered(self, member: Member, answer: group_pb2.Answer) -> None:
    """A follower says something."""

  def left(self, member: Member) -> None:
    """A follower's stream has ended, by `Member.close` or otherwise."""


class Members(grpc.GenericRpcHandler):
  """The service that followers join; who does not belong here is refused."""

  def __init__(self, epoch: str, num_processes: int, listener: Listener):
    """Has no members yet.

    Args:
      epoch: what processes of this start of the group know, and nobody else.
      num_processes: of the group, the leader included.
      listener: told of what happens.
    """
    self._epoch = epoch
    self._num_processes = num_processes
    self._listener = listener
    self._lock = threading.Lock()
    self._members: dict[int, Member] = {}
    # Entries are serialized once for all streams, so they go out as bytes.
    self._handler = grpc.stream_stream_rpc_method_handler(
      self._follow, request_deserializer=group_pb2.Answer.FromString
    )

  def service(
    self, handler_call_details: grpc.HandlerCallDetails
  ) -> grpc.RpcMethodHandler | None:
    """The handler of a method; None for an unknown one."""
    path = f'/{follower_streams.SERVICE}/{follower_streams.METHOD}'
    return self._handler if handler_call_details.method == path else None

  def all(self) -> list[Member]:
    """Those that are there, by number."""
    with self._lock:
      return [member for _, member in sorted(self._members.items())]

  def missing(self) -> list[int]:
    """Numbers of the processes that have not joined."""
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
    # By this the follower knows that it has joined.
    context.send_initial_metadata(())
    self._listener.joined(member)
    yield from member.entries(context)

  def _enter(
    self, said: dict[str, Any], context: grpc.ServicerContext
  ) -> Member:
    """The caller as a new member; aborts the call if it is none."""
    number = said.get(follower_streams.PROCESS, '')
    caller = f'{said.get(follower_streams.HOST, "?")} (process {number or "?"})'
    try:
      access.check_server(context, f'joining the group as host {caller}')
    except errors.PermissionDenied as e:
      self._refuse(context, e.code, e.message)
    # Compared in constant time, because it is a secret too.
    if not hmac.compare_digest(
      str(said.get(follower_streams.EPOCH, '')).encode(), self._epoch.encode()
    ):
      self._refuse(
        context,
        grpc.StatusCode.PERMISSION_DENIED,
        f'host {caller} is not of this start of the group (its epoch is'
        ' another one): restart it, so that it joins the present one',
      )
    last = self._num_processes - 1
    if not number.isdecimal() or not 1 <= int(number) <= last:
      self._refuse(
        context,
        grpc.StatusCode.INVALID_ARGUMENT,
        f'host {caller} is none of the followers, processes 1 to {last}: give'
        ' each process of the group a number of its own',
      )
    member = Member(
      group_engine.Host(str(said[follower_streams.HOST]), int(number))
    )
    with self._lock:
      known = self._members.setdefault(int(number), member)
    if known is not member:
      self._refuse(
        context,
        grpc.StatusCode.ALREADY_EXISTS,
        f'process {number} is here already, on host {known.host.name}: give'
        ' each process of the group a number of its own',
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
      pass  # The stream has ended; `_left` is told too.

  def _left(self, member: Member) -> None:
    member.close()  # Its thread is to go on.
    self._listener.left(member)


def make_server(
  members: Members, num_processes: int, silence_secs: float
) -> grpc.Server:
  """The leader's server for its followers; not bound to a port yet."""
  return grpc.server(
    # Each stream holds a thread as long as it lasts; a few refuse others.
    futures.ThreadPoolExecutor(num_processes + 8, thread_name_prefix='group'),
    handlers=(members,),
    options=follower_streams.server_options(silence_secs),
  )
