"""The leader of a group: its ordered log, its barriers and its end.

The followers' engines repeat every call of the leader's engines. The leader
appends each call to the log before it makes the call. All models share one lock
around these two actions. The log is sent to each follower over a separate
stream, without waiting. If a follower is late, the collective operations of the
programs wait for it.

A group ends as a whole. The leader reports the reason: a host is lost, failed
to make a call, or exceeded a timeout.
"""

from collections.abc import Callable
import secrets
import threading
import time
from typing import Generic, NamedTuple, NoReturn, TypeVar

from absl import logging

from saxml_ext.common import errors
from saxml_ext.common import grpc_util
from saxml_ext.common import net
from saxml_ext.groups import agreement
from saxml_ext.groups import followers as members_lib
from saxml_ext.groups import group_engine
from saxml_ext.groups import leader_runner
from saxml_ext.groups import ordered_log
from saxml_ext.protobuf import group_pb2
from saxml_ext.protobuf import modelet_pb2

_T = TypeVar('_T')

# The seconds after the silence timeout until a lost host is reported.
_SLACK = 0.25
# The seconds between checks that a model is still needed.
_ASK = 0.5
# The seconds that followers have to leave after a normal end.
_FAREWELL = 5.0
# The seconds that followers have to leave when the group cannot go on.
_LAST_WORD = 2.0


class Loaded(NamedTuple, Generic[group_engine.PreparedT]):
  """A model that runs on the whole group.

  Attributes:
    prepared: The leader's part of the model.
    runner: The engine; every process makes each call of it.
  """

  prepared: group_engine.PreparedT
  runner: leader_runner.LeaderRunner


class Leader(Generic[group_engine.PreparedT]):
  """Runs process 0 of a group. Any thread may call it.

  Attributes:
    epoch: The secret with which processes prove that they belong to this start
      of the group.
    host: The host of this process.
  """

  def __init__(
    self,
    host_name: str,
    num_processes: int,
    limits: group_engine.Limits,
    prepare: group_engine.PrepareFn[group_engine.PreparedT],
    on_end: Callable[[str], None],
    on_stopping: Callable[[group_engine.Host], None],
    check_wanted: Callable[[], None] = lambda: None,
  ):
    """Creates a leader; followers can join after `listen`.

    Args:
      host_name: The name of this process's host.
      num_processes: The number of processes of the group, including this one.
      limits: The timeouts of the group.
      prepare: A function that prepares a model in this process.
      on_end: A function that is called once, on a separate thread, with the
        reason why the group cannot go on. It must end the process.
      on_stopping: A function that is called when a follower was asked to stop,
        for example by SIGTERM.
      check_wanted: A function that raises SaxError if the load on this thread
        must end.
    """
    self.epoch = secrets.token_hex(16)
    self.host = group_engine.Host(host_name, 0)
    self._limits = limits
    self._prepare = prepare
    self._on_end = on_end
    self._on_stopping = on_stopping
    self._check_wanted = check_wanted
    self._members = members_lib.Members(self.epoch, num_processes, self)
    self._server = members_lib.make_server(
      self._members, num_processes, limits.silence
    )
    self._log = ordered_log.OrderedLog(self._members.all)
    self._stopwatch = ordered_log.Stopwatch(self._late)
    self._turn = ordered_log.FairLock()
    # This lock guards the attributes below.
    self._lock = threading.Condition()
    self._finishing = False
    self._ended = False
    self._left: set[int] = set()

  def listen(self, host: str, port: int, interface: str | None = None) -> str:
    """Listens for followers.

    Args:
      host: The host at which followers reach this process.
      port: The port to listen on; 0 picks a free one.
      interface: The address to listen on; None stands for all addresses.

    Returns:
      The address, "host:port".

    Raises:
      errors.FailedPrecondition: The port is in use.
    """
    bound = grpc_util.listen(self._server, port, interface or '')
    self._server.start()
    self._stopwatch.start()
    return net.join_host_port(host, bound)

  def wait_for_followers(self) -> list[group_engine.Host]:
    """Waits until all followers have joined.

    Returns:
      All hosts of the group, by process number.

    Raises:
      errors.Unavailable: Some followers did not join before the timeout.
    """
    with self._lock:
      self._lock.wait_for(
        lambda: not self._members.missing(), self._limits.join
      )
    if missing := self._members.missing():
      raise errors.Unavailable(
        f'processes {", ".join(map(str, missing))} of the group did not join'
        f' within {self._limits.join:g} s. Check their logs, and restart the'
        ' group.'
      )
    return [self.host, *(member.host for member in self._members.all())]

  def load(
    self, request: modelet_pb2.LoadRequest
  ) -> Loaded[group_engine.PreparedT]:
    """Loads a model in every process.

    Raises:
      errors.SaxError: A process could not prepare the model, or the processes
        have prepared different models. Then no process keeps it, and the group
        goes on.
    """
    begin = time.monotonic()
    entry = group_pb2.Entry(load=group_pb2.Load(request=request))
    answers = self._log.expect()
    model = self._append(entry, answers)
    try:
      prepared = self._prepare(request)
      mine: agreement.Outcome = dict(prepared.identity)
    except Exception as e:  # pylint: disable=broad-exception-caught
      mine = errors.from_exception(e, 'Loading error')
      agreement.log(request.model_path, mine, e)
    deadline = begin + self._limits.load
    dropped = self._wait_while_wanted(model, answers, deadline)
    left = deadline - time.monotonic()
    theirs = self._wait(answers, 'prepared the model', left)
    outcomes = {self.host: mine}
    for member in self._members.all():
      answer = theirs[member.host.process_id]
      outcomes[member.host] = agreement.outcome_of(answer)
    problem = agreement.problem(outcomes)
    if dropped or problem:
      self._wait_for_unload(dropped or self._append_unload(model))
      self._check_wanted()  # Its error has priority.
      raise problem or errors.Cancelled('the model is no longer needed')
    return Loaded(prepared, self._start(model, prepared))

  def unload(self, model: int) -> None:
    """Unloads a model in every process and waits for it.

    Args:
      model: The number of the model's `load` entry.
    """
    self._wait_for_unload(self._append_unload(model))

  def run(
    self,
    entry: group_pb2.Entry,
    what: str,
    call: Callable[[], _T],
    limit: float | None = None,
    answers: ordered_log.Answers | None = None,
  ) -> _T:
    """Makes a call in every process; does not return if the call fails.

    Args:
      entry: The entry of the call, for the followers.
      what: A short name of the call.
      call: A function that makes the call in this process.
      limit: The timeout in seconds; None stands for `Limits.step`.
      answers: The followers' answers, if the call has any.

    Returns:
      The result of the call in this process.
    """
    with self._turn:
      sequence = self._append(entry, answers)
      limit = limit or self._limits.step
      try:
        with self._stopwatch.timing(sequence, what, limit):
          return call()
      except Exception as e:  # pylint: disable=broad-exception-caught
        logging.exception('group: %s failed', what)
        self._suspect(f'{self.host}: {what} failed: {type(e).__name__}: {e}')
        _wait_for_the_end()

  def tell_serving(self, address: str) -> None:
    """Sends the followers the address of this server, "host:port"."""
    self._append(group_pb2.Entry(serving=group_pb2.Serving(address=address)))

  def finish(self) -> None:
    """Ends the group normally and waits briefly for the followers to leave."""
    with self._lock:
      self._finishing = True
    self._append(group_pb2.Entry(end=group_pb2.End()))
    members = self._members.all()
    for member in members:
      member.close()
    self._wait_for_leaving(len(members), _FAREWELL)
    self._server.stop(0)

  def end(self, reason: str) -> None:
    """Ends the group because it cannot go on; only the first reason is kept."""
    with self._lock:
      if self._ended or self._finishing:
        return
      self._ended = True
    logging.error('group: %s', reason)
    threading.Thread(target=self._on_end, args=(reason,), daemon=True).start()

  def tell_end(self, reason: str) -> None:
    """Sends the followers the reason for the end; waits briefly until they end.

    JAX would end them without a reason when the leader is gone.
    """
    members = self._members.all()
    for member in members:
      member.close(reason)
    self._wait_for_leaving(len(members), _LAST_WORD)

  # The methods of `members_lib.Listener` run on threads of the streams.

  def joined(self, member: members_lib.Member) -> None:
    logging.info('group: %s has joined', member.host)
    with self._lock:
      self._lock.notify_all()

  def left(self, member: members_lib.Member) -> None:
    with self._lock:
      self._left.add(member.host.process_id)
      self._lock.notify_all()
    self.end(
      f'{member.host} is lost: its connection broke, or it sent nothing for'
      f' {self._limits.silence:g} s'
    )

  def answered(
    self, member: members_lib.Member, answer: group_pb2.Answer
  ) -> None:
    kind = answer.WhichOneof('kind')
    if kind == 'applied':
      member.applied = answer.applied
    elif kind == 'broken':
      self._suspect(f'{member.host}: {answer.broken}')
    elif kind == 'stopping':
      logging.info('group: %s was asked to stop', member.host)
      self._on_stopping(member.host)
    else:
      self._log.answered(member.host.process_id, answer)

  def _start(
    self, model: int, prepared: group_engine.Prepared
  ) -> leader_runner.LeaderRunner:
    """Starts a model that all processes have prepared."""
    answers = self._log.expect()
    runner = self.run(
      group_pb2.Entry(model=model, start=group_pb2.Start()),
      'the start of a model',
      prepared.start,
      self._limits.load,
      answers,
    )
    self._wait(answers, 'started the model', self._limits.load)
    return leader_runner.LeaderRunner(self.run, model, runner)

  def _wait_while_wanted(
    self, model: int, answers: ordered_log.Answers, deadline: float
  ) -> ordered_log.Answers | None:
    """Waits until all have prepared a model or it is no longer needed.

    Returns:
      None, or the answers to the entry that ends the followers' preparation.
    """
    while True:
      try:
        self._check_wanted()
      except errors.SaxError:
        return self._append_unload(model)
      left = deadline - time.monotonic()
      if left <= 0 or not answers.wait(min(left, _ASK)):
        return None

  def _append_unload(self, model: int) -> ordered_log.Answers:
    answers = self._log.expect()
    entry = group_pb2.Entry(model=model, unload=group_pb2.Unload())
    self._append(entry, answers)
    return answers

  def _wait_for_unload(self, answers: ordered_log.Answers) -> None:
    self._wait(answers, 'unloaded a model', self._limits.load)

  def _append(
    self, entry: group_pb2.Entry, answers: ordered_log.Answers | None = None
  ) -> int:
    """Appends an entry to the log; does not return once the group has ended."""
    if self._ended:
      _wait_for_the_end()
    return self._log.append(entry, answers)

  def _wait(
    self, answers: ordered_log.Answers, what: str, seconds: float
  ) -> dict[int, group_pb2.Answer]:
    """Waits for all answers; ends the group if some are missing."""
    if missing := answers.wait(seconds):
      hosts = self._named(lambda member: member.host.process_id in missing)
      self.end(f'{hosts} has not {what} within {self._limits.load:g} s')
      _wait_for_the_end()
    self._log.forget(answers)
    return answers.all()

  def _wait_for_leaving(self, number: int, seconds: float) -> None:
    """Waits until the given number of followers have left."""
    with self._lock:
      self._lock.wait_for(lambda: len(self._left) == number, seconds)

  def _named(self, matches: Callable[[members_lib.Member], bool]) -> str:
    return ', '.join(
      str(member.host) for member in self._members.all() if matches(member)
    )

  def _suspect(self, reason: str) -> None:
    """Ends the group, unless the loss of a host is detected first.

    When a process dies, the collective operations of the other processes fail
    too. They may fail before the loss is detected, and the loss is the likelier
    cause.
    """
    timer = threading.Timer(self._limits.silence + _SLACK, self.end, (reason,))
    timer.daemon = True
    timer.start()

  def _late(self, call: ordered_log.Call) -> None:
    """Ends the group because a call exceeded its timeout."""
    slow = self._named(lambda member: member.applied < call.sequence)
    self.end(
      f'{slow or self.host} has not done {call.what} within {call.limit:g} s'
    )


def _wait_for_the_end() -> NoReturn:
  """Blocks a call that must not return, until the process has ended."""
  while True:
    time.sleep(60)
