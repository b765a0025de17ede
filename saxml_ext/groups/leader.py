"""The leader of a group: its ordered log, its barriers and its end.

Whatever the leader's engines do, the followers' engines do too, because each
call is appended to one log before it is made, and all models share one lock
around the two. The log goes to each follower over a stream of its own, without
waiting; that a follower lags shows in the collective operations of the
programs, which wait for it.

A group ends as a whole. Its leader says why: which host is lost, which one
could not do what the others did, or which one takes too long.
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

# Seconds beyond those of silence, in which a lost host is known to be lost.
_SLACK = 0.25
# Seconds between two checks whether a model is still wanted.
_ASK = 0.5
# Seconds in which followers that were told to end do so.
_FAREWELL = 5.0
# The same when the group cannot go on.
_LAST_WORD = 2.0


class Loaded(NamedTuple, Generic[group_engine.PreparedT]):
  """A model that runs on the whole group.

  Attributes:
    prepared: the leader's part of it.
    runner: its engine; each call of it is made by every process.
  """

  prepared: group_engine.PreparedT
  runner: leader_runner.LeaderRunner


class Leader(Generic[group_engine.PreparedT]):
  """Process 0 of a group. Any thread may call it.

  Attributes:
    epoch: what its processes show to be of this start of the group.
    host: this process.
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
    """Nobody can join before `listen`.

    Args:
      host_name: of this process.
      num_processes: of the group, this one included.
      limits: how long what may take.
      prepare: prepares a model in this process.
      on_end: called once, on a thread of its own, with the reason why the
        group cannot go on; it is to end the process.
      on_stopping: called when a follower was told to stop, as by SIGTERM.
      check_wanted: Raises SaxError if the load on this thread is to end.
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
    # Guards what follows.
    self._lock = threading.Condition()
    self._finishing = False
    self._ended = False
    self._left: set[int] = set()

  def listen(self, host: str, port: int, interface: str | None = None) -> str:
    """Lets followers join.

    Args:
      host: at which they reach this process.
      port: to listen on; 0 picks a free one.
      interface: the address to listen on; None: all of them.

    Returns:
      The address, "host:port".

    Raises:
      errors.FailedPrecondition: the port is taken.
    """
    bound = grpc_util.listen(self._server, port, interface or '')
    self._server.start()
    self._stopwatch.start()
    return net.join_host_port(host, bound)

  def wait_for_followers(self) -> list[group_engine.Host]:
    """Waits until all have joined.

    Returns:
      All hosts of the group, by number of the process.

    Raises:
      errors.Unavailable: some did not in time.
    """
    with self._lock:
      self._lock.wait_for(
        lambda: not self._members.missing(), self._limits.join
      )
    if missing := self._members.missing():
      raise errors.Unavailable(
        f'processes {", ".join(map(str, missing))} of the group did not join'
        f' within {self._limits.join:g} s: look at their logs, and restart the'
        ' group'
      )
    return [self.host, *(member.host for member in self._members.all())]

  def load(
    self, request: modelet_pb2.LoadRequest
  ) -> Loaded[group_engine.PreparedT]:
    """Loads a model in every process.

    Raises:
      errors.SaxError: some process could not prepare it, or they have not
        prepared the same. Then no process has it, and the group goes on.
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
      self._check_wanted()  # Its reason goes before the followers'.
      raise problem or errors.Cancelled('nobody wants the model any more')
    return Loaded(prepared, self._start(model, prepared))

  def unload(self, model: int) -> None:
    """Has every process forget a model; returns when they have.

    Args:
      model: number of its `load` entry.
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
    """Makes a call in every process; it does not return if it fails.

    Args:
      entry: tells the followers of it.
      what: it is, in a word.
      call: makes it here.
      limit: seconds it may take; None: `Limits.step`.
      answers: of the followers, if they are to give any.

    Returns:
      What the call returned here.
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
    """Tells the followers the address, "host:port", of this server."""
    self._append(group_pb2.Entry(serving=group_pb2.Serving(address=address)))

  def finish(self) -> None:
    """Tells the followers that all is done; waits a little for their end."""
    with self._lock:
      self._finishing = True
    self._append(group_pb2.Entry(end=group_pb2.End()))
    members = self._members.all()
    for member in members:
      member.close()
    self._wait_for_leaving(len(members), _FAREWELL)
    self._server.stop(0)

  def end(self, reason: str) -> None:
    """Ends the group because it cannot go on; the first reason counts."""
    with self._lock:
      if self._ended or self._finishing:
        return
      self._ended = True
    logging.error('group: %s', reason)
    threading.Thread(target=self._on_end, args=(reason,), daemon=True).start()

  def tell_end(self, reason: str) -> None:
    """Tells the followers why the group ends; waits a little for their end.

    JAX would end them without a reason when the leader is gone.
    """
    members = self._members.all()
    for member in members:
      member.close(reason)
    self._wait_for_leaving(len(members), _LAST_WORD)

  # `members_lib.Listener`, on threads of the streams.

  def joined(self, member: members_lib.Member) -> None:
    logging.info('group: %s has joined', member.host)
    with self._lock:
      self._lock.notify_all()

  def left(self, member: members_lib.Member) -> None:
    with self._lock:
      self._left.add(member.host.process_id)
      self._lock.notify_all()
    self.end(
      f'{member.host} is lost: its connection broke, or it said nothing for'
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
      logging.info('group: %s was told to stop', member.host)
      self._on_stopping(member.host)
    else:
      self._log.answered(member.host.process_id, answer)

  def _start(
    self, model: int, prepared: group_engine.Prepared
  ) -> leader_runner.LeaderRunner:
    """Starts a model that all have prepared."""
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
    """Waits until all have prepared a model, or nobody wants it any more.

    Returns:
      None, or the answers to the entry that ends what the followers prepare.
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
    """Appends to the log; does not return once the group has ended."""
    if self._ended:
      _wait_for_the_end()
    return self._log.append(entry, answers)

  def _wait(
    self, answers: ordered_log.Answers, what: str, seconds: float
  ) -> dict[int, group_pb2.Answer]:
    """Waits for all answers; if some do not come, the group ends."""
    if missing := answers.wait(seconds):
      hosts = self._named(lambda member: member.host.process_id in missing)
      self.end(f'{hosts} has not {what} within {self._limits.load:g} s')
      _wait_for_the_end()
    self._log.forget(answers)
    return answers.all()

  def _wait_for_leaving(self, number: int, seconds: float) -> None:
    """Waits until so many followers have left."""
    with self._lock:
      self._lock.wait_for(lambda: len(self._left) == number, seconds)

  def _named(self, wanted: Callable[[members_lib.Member], bool]) -> str:
    return ', '.join(
      str(member.host) for member in self._members.all() if wanted(member)
    )

  def _suspect(self, reason: str) -> None:
    """Ends the group unless the loss of a host, the likelier cause, does.

    Where a process dies, the others' collective operations fail as well, and
    maybe sooner than it is known to be lost.
    """
    timer = threading.Timer(self._limits.silence + _SLACK, self.end, (reason,))
    timer.daemon = True
    timer.start()

  def _late(self, call: ordered_log.Call) -> None:
    """Ends the group, because a call takes too long."""
    slow = self._named(lambda member: member.applied < call.sequence)
    self.end(
      f'{slow or self.host} has not done {call.what} within {call.limit:g} s'
    )


def _wait_for_the_end() -> NoReturn:
  """Keeps what is not to be answered until the process has ended."""
  while True:
    time.sleep(60)
