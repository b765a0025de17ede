"""A follower of a group, which repeats every call of the leader."""

from collections.abc import Callable
from concurrent import futures
import contextlib
import queue
import threading
import time
from typing import NamedTuple

from absl import logging
import grpc

from saxml_ext.common import errors
from saxml_ext.common import memory
from saxml_ext.groups import agreement
from saxml_ext.groups import entries
from saxml_ext.groups import follower_streams
from saxml_ext.groups import group_engine
from saxml_ext.groups import leader_address
from saxml_ext.protobuf import group_pb2
from saxml_ext.protobuf import modelet_pb2

# The number of progress reports to the leader within the silence timeout.
_REPORTS = 5
# The seconds that the leader has to end the group after a failure report.
_VERDICT = 10.0


class Ended(NamedTuple):
  """The reason why a group cannot go on.

  Attributes:
    reason: The reason in words, with the name of a host.
    orphan: The address of the leader's server if the leader is lost and cannot
      inform its cell; otherwise empty.
  """

  reason: str
  orphan: str = ''


class Follower:
  """Runs one of the processes 1, 2, ... of a group."""

  def __init__(
    self,
    leader: leader_address.Announcement,
    host: group_engine.Host,
    limits: group_engine.Limits,
    prepare: group_engine.PrepareFn,
    on_joined: Callable[[], None],
    on_end: Callable[[Ended], None],
    checking: Callable[
      [Callable[[], None]], contextlib.AbstractContextManager[object]
    ] = contextlib.nullcontext,
  ):
    """Stores the arguments; `run` connects to the leader.

    Args:
      leader: The leader's announcement of its address and epoch.
      host: The host of this process.
      limits: The timeouts of the group.
      prepare: A function that prepares a model in this process.
      on_joined: A function that is called when the leader has accepted this
        process.
      on_end: A function that is called once when the group cannot go on, on any
        thread, perhaps while an engine hangs. It must end the process.
      checking: A function that returns a context. Within the context, `prepare`
        regularly calls the given function, which raises SaxError once the model
        is no longer needed.
    """
    self._leader = leader
    self._host = host
    self._limits = limits
    self._prepare = prepare
    self._on_joined = on_joined
    self._on_end = on_end
    self._checking = checking
    self._outbox: queue.SimpleQueue[group_pb2.Answer | None]
    self._outbox = queue.SimpleQueue()
    self._loader = futures.ThreadPoolExecutor(1, thread_name_prefix='loader')
    self._models: set[int] = set()
    self._prepared: dict[int, group_engine.Prepared] = {}
    self._runners: dict[int, group_engine.Runner] = {}
    self._applied = 0
    self._serving = ''
    self._done = False
    self._ending = threading.Lock()
    # This lock guards the attributes below.
    self._calling = threading.Lock()
    self._called = False
    self._stopped = False

  def run(self) -> bool:
    """Joins the group and applies the log until the group ends.

    Returns:
      True if the leader ended the group normally, or if this process was asked
      to stop before it joined. If False, `on_end` is called.

    Raises:
      errors.Unavailable: The leader cannot be reached.
    """
    channel = follower_streams.channel(
      self._leader.address, self._limits.silence
    )
    try:
      grpc.channel_ready_future(channel).result(self._limits.join)
    except grpc.FutureTimeoutError as e:
      raise errors.Unavailable(
        f'the leader of the group, {self._leader.name} at'
        f' {self._leader.address}, refuses connections. Open --group_port'
        ' between the hosts, and use TLS on all of them or on none.'
      ) from e
    with self._calling:
      if self._stopped:
        return True
      self._called = True
    call = channel.stream_stream(
      f'/{follower_streams.SERVICE}/{follower_streams.METHOD}',
      request_serializer=group_pb2.Answer.SerializeToString,
      response_deserializer=group_pb2.Entry.FromString,
    )(
      iter(self._outbox.get, None),
      metadata=(
        (follower_streams.EPOCH, self._leader.epoch),
        (follower_streams.PROCESS, str(self._host.process_id)),
        (follower_streams.HOST, self._host.name),
      ),
    )
    if not call.add_callback(lambda: self._closed(call)):
      self._closed(call)
    call.initial_metadata()
    if call.is_active():
      self._on_joined()
      threading.Thread(target=self._tell_applied, daemon=True).start()
    try:
      for entry in call:
        self._apply(entry)
    except grpc.RpcError:
      self._closed(call)
    if not self._done:
      self._end('the leader left without a reason')
    self._outbox.put(None)
    return self._done

  def ask_to_stop(self) -> bool:
    """Asks the leader to answer its pending requests and end the group.

    The leader may count this process as joined before this process knows it.

    Returns:
      False if this process has not called the leader, and will not.
    """
    with self._calling:
      self._stopped = True
      if self._called:
        self._outbox.put(group_pb2.Answer(stopping=True))
      return self._called

  def _closed(self, call: grpc.Call) -> None:
    """Reports the reason why the stream ended, unless it ended normally."""
    code, details = call.code(), call.details() or ''
    if code is grpc.StatusCode.OK:
      return
    leader = group_engine.Host(self._leader.name, 0)
    if code is grpc.StatusCode.ABORTED:
      self._end(details)
    elif code in (
      grpc.StatusCode.PERMISSION_DENIED,
      grpc.StatusCode.INVALID_ARGUMENT,
      grpc.StatusCode.ALREADY_EXISTS,
    ):
      self._end(f'{leader} refused this process: {details}')
    else:
      self._end(
        f'{leader} is lost: its connection broke, or it sent nothing for'
        f' {self._limits.silence:g} s ({details})',
        self._serving,
      )

  def _tell_applied(self) -> None:
    while not self._done:
      time.sleep(self._limits.silence / _REPORTS)
      self._outbox.put(group_pb2.Answer(applied=self._applied))

  def _apply(self, entry: group_pb2.Entry) -> None:
    """Repeats a call of the leader."""
    kind = entry.WhichOneof('call')
    try:
      if entry.sequence != self._applied + 1:
        raise ValueError(f'entry {entry.sequence} came after {self._applied}')
      if kind == 'load':
        self._models.add(entry.model)
        self._loader.submit(self._load, entry.model, entry.load.request)
      elif kind == 'start':
        self._runners[entry.model] = self._prepared.pop(entry.model).start()
        self._say_done(entry)
      elif kind == 'unload':
        self._unload(entry.model)
        self._say_done(entry)
      elif kind == 'serving':
        self._serving = entry.serving.address
      elif kind == 'end':
        self._done = True
      else:
        entries.apply(entry, self._runners[entry.model])
    except Exception as e:  # pylint: disable=broad-exception-caught
      logging.exception('group: entry %d (%s) failed', entry.sequence, kind)
      self._break(f'{kind} failed: {type(e).__name__}: {e}')
    self._applied = entry.sequence

  def _load(self, model: int, request: modelet_pb2.LoadRequest) -> None:
    """Prepares a model while other entries are applied."""

    def check_is_loaded() -> None:
      if model not in self._models:
        raise errors.Cancelled('the model is no longer needed')

    try:
      with self._checking(check_is_loaded):
        prepared = self._prepare(request)
      self._prepared[model] = prepared
      check_is_loaded()
    except Exception as e:  # pylint: disable=broad-exception-caught
      error = errors.from_exception(e, 'Loading error')
      agreement.log(request.model_path, error, e)
      self._prepared.pop(model, None)
      self._outbox.put(agreement.failure_of(model, error))
      return
    self._outbox.put(
      group_pb2.Answer(
        identity=group_pb2.Identity(load=model, parts=dict(prepared.identity))
      )
    )

  def _unload(self, model: int) -> None:
    self._models.discard(model)
    self._prepared.pop(model, None)
    self._runners.pop(model, None)
    memory.collect()

  def _say_done(self, entry: group_pb2.Entry) -> None:
    self._outbox.put(group_pb2.Answer(done=entry.sequence))

  def _break(self, reason: str) -> None:
    """Asks the leader to end the group; does not return."""
    self._outbox.put(group_pb2.Answer(broken=reason))
    time.sleep(_VERDICT)
    self._end(f'{self._host}: {reason}')

  def _end(self, reason: str, orphan: str = '') -> None:
    """Reports the reason why the group ends, unless one was reported before."""
    if self._ending.acquire(blocking=False):
      self._on_end(Ended(reason, orphan))
