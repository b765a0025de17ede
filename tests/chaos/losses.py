"""What callers notice when model servers are killed under load: nothing.

Three replicas and a spare server take requests at 70 % of what three can do.
Again and again one of the replicas is killed; the spare takes its place, and a
new server is started as the next spare.
"""

from concurrent import futures
import dataclasses
import random
import threading
import time

from saxml_ext.client import sax
from saxml_ext.common import errors
from saxml_ext.protobuf import admin_pb2
from tests.chaos import evictions
from tests.chaos import processes

_SERVER = 'tests.cell.instant_server'
_PARAMS = 'saxml_ext.params.gptj.TinyTokenizedFP32'
_MODEL = processes.CELL + '/m'
_REPLICAS = 3
_SLOTS = 32  # Of these params.
_STEP_SECS = 0.2
_LOAD = 0.7
_TIMEOUT_SECS = 60.0
_PAUSE_SECS = 1.0
_COMPLETED = 'completed'


@dataclasses.dataclass
class Result:
  """What came of it.

  Attributes:
    requests: how many were sent, at `rate` a second.
    lost: why requests failed, or what they were answered instead.
    completed: different prompts that engines have answered.
    twice: requests that two engines have completed: the first one was killed
      before its answer was out.
    longest_secs: of a request.
    gone_secs: from each kill until clients are told to stay away.
    replaced_secs: from each kill until there are three replicas again.
  """

  rate: float = 0.0
  requests: int = 0
  lost: list[str] = dataclasses.field(default_factory=list)
  completed: int = 0
  twice: int = 0
  longest_secs: float = 0.0
  gone_secs: list[float] = dataclasses.field(default_factory=list)
  replaced_secs: list[float] = dataclasses.field(default_factory=list)


def run(
  directory: str,
  rounds: int,
  seed: int = 0,
  step_secs: float = _STEP_SECS,
  load: float = _LOAD,
) -> Result:
  """Kills a replica in each round.

  Args:
    directory: an empty one.
    rounds: how many replicas are killed.
    seed: decides which ones.
    step_secs: how long servers take for a request.
    load: requests sent, as a part of what all replicas together can answer.
  """
  rng = random.Random(seed)
  result = Result(rate=load * _REPLICAS * _SLOTS / step_secs)
  with processes.Cell(directory) as cell:
    cell.admin()
    cell.wait_for_leader()
    model = admin_pb2.Model(
      model_id=_MODEL,
      model_path=_PARAMS,
      # Not read by engines that answer at once.
      checkpoint_path=directory,
      requested_num_replicas=_REPLICAS,
    )
    cell.call('Publish', admin_pb2.PublishRequest(model=model))
    servers = [_start(cell, step_secs) for _ in range(_REPLICAS + 1)]
    addresses = _wait_for_replicas(cell)
    with _Load(cell.root, result):
      for left in reversed(range(rounds)):
        time.sleep(_PAUSE_SECS)
        victim = rng.choice([s for s in servers if s.address in addresses])
        victim.kill()
        killed = time.monotonic()
        servers.remove(victim)
        processes.wait(
          lambda: victim.address not in evictions.addresses(cell, _MODEL)
        )
        result.gone_secs.append(time.monotonic() - killed)
        addresses = _wait_for_replicas(cell)
        result.replaced_secs.append(time.monotonic() - killed)
        if left:  # The next round needs a spare again.
          servers.append(_start(cell, step_secs))
    lines = (cell.path / _COMPLETED).read_text().splitlines()
    result.completed = len(set(lines))
    result.twice = len(lines) - result.completed
  return result


def _start(cell: processes.Cell, step_secs: float) -> processes.Process:
  flags = [f'--step_secs={step_secs}', f'--completed={cell.path}/{_COMPLETED}']
  return cell.start(_SERVER, flags)


def _wait_for_replicas(cell: processes.Cell) -> set[str]:
  def enough() -> set[str] | None:
    found = evictions.addresses(cell, _MODEL)
    return found if len(found) == _REPLICAS else None

  return processes.wait(enough)


class _Load:
  """Sends requests at an even rate while the context lasts."""

  def __init__(self, root: str, result: Result):
    sax.SetRoot(root)
    self._lm = sax.Model(_MODEL).LM()
    self._result = result
    self._ended = threading.Event()
    self._answers: list[futures.Future] = []
    self._lock = threading.Lock()
    self._thread = threading.Thread(target=self._send)

  def __enter__(self) -> '_Load':
    self._lm.Generate('1,2,3')  # Of no request that is counted.
    self._thread.start()
    return self

  def __exit__(self, *unused) -> None:
    self._ended.set()
    self._thread.join()
    futures.wait(self._answers, 2 * _TIMEOUT_SECS)
    answered = sum(future.done() for future in self._answers)
    if answered < len(self._answers):
      self._result.lost.append(f'{len(self._answers) - answered} hang')

  def _send(self) -> None:
    options = sax.ModelOptions(_TIMEOUT_SECS)
    due = time.monotonic()
    while not self._ended.wait(max(0.0, due - time.monotonic())):
      due += 1 / self._result.rate
      number = self._result.requests
      prompt = f'{number % 50_000},{number // 50_000},7'
      begin = time.monotonic()
      future = self._lm.GenerateAsync(prompt, options)
      self._answers.append(future)
      self._result.requests += 1
      future.add_done_callback(
        lambda f, prompt=prompt, begin=begin: self._note(f, prompt, begin)
      )

  def _note(self, future: futures.Future, prompt: str, begin: float) -> None:
    secs, wrong = time.monotonic() - begin, ''
    try:
      (text, _), *_ = future.result()
      if text != prompt:
        wrong = f'{prompt} was answered {text}'
    except errors.SaxError as e:
      wrong = f'{e.code.name}: {e.message}'
    with self._lock:
      self._result.longest_secs = max(self._result.longest_secs, secs)
      if wrong:
        self._result.lost.append(wrong)
