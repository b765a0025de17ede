"""Runs the contenders in turn, round after round."""

from collections.abc import Callable, Iterator
import contextlib
import dataclasses
import os

from benchmarks import contenders
from benchmarks import room
from benchmarks import settings as settings_lib
from benchmarks import summary
from benchmarks import worker as worker_lib

# A function that reports the current task and the finished share of all work.
Report = Callable[[str, float], None]


@dataclasses.dataclass
class Entry:
  """A contender that takes part, and its measurements.

  Attributes:
    worker: The process.
    loaded: The reply to "load": the seconds of each part, and a note.
    samples: The samples by the number of requests, one per round.
    answers: The answers of the first round with the largest number of requests,
      [requests][tokens].
  """

  worker: worker_lib.Worker
  loaded: dict
  samples: dict[int, list[summary.Sample]]
  answers: list[list[int]] = dataclasses.field(default_factory=list)

  @property
  def contender(self) -> contenders.Contender:
    return self.worker.contender


@dataclasses.dataclass(frozen=True)
class ModeResult:
  """The result of one mode: contenders that ran, and reasons of the others."""

  mode: str
  entries: tuple[Entry, ...]
  absent: dict[str, str]

  def find(self, contender: contenders.Contender) -> Entry | None:
    return next((e for e in self.entries if e.contender == contender), None)


@contextlib.contextmanager
def run(
  settings: settings_lib.Settings,
  mode: str,
  report: Report,
) -> Iterator[ModeResult]:
  """Measures one mode; the workers live until the `with` block ends."""
  with contextlib.ExitStack() as stack:
    entries, absent = _load(settings, mode, report, stack)
    total = settings.rounds * len(settings.counts) * max(1, len(entries))
    done = 0
    for number in range(settings.rounds):
      # The order changes, so no contender is always the first or always follows
      # the same one.
      shift = number % max(1, len(entries))
      for count in settings.counts:
        for entry in entries[shift:] + entries[:shift]:
          label = (
            f'{mode}: round {number + 1}, {entry.contender.name}, {count}'
            ' requests'
          )
          report(label, done / total)
          _run(entry, count)
          done += 1
          rate = entry.samples[count][-1].rate
          report(f'{label}: {rate:.1f} tokens per CPU second', done / total)
    yield ModeResult(mode, tuple(entries), absent)


def _load(
  settings: settings_lib.Settings,
  mode: str,
  report: Report,
  stack: contextlib.ExitStack,
) -> tuple[list[Entry], dict[str, str]]:
  requests = settings.requests()
  entries: list[Entry] = []
  absent: dict[str, str] = {}
  for contender in settings.engines:
    report(f'{mode}: loading {contender.name}', 0)
    shortage = room.shortage(contender, settings.sizes)
    if shortage is not None and contender.engine == contenders.OURS:
      raise worker_lib.WorkerError(shortage)
    if shortage is not None:
      absent[contender.name] = shortage
      continue
    log = os.path.join(settings.out, 'logs', f'{mode}-{contender.name}.log')
    worker = worker_lib.Worker(contender, settings.cores, log)
    stack.callback(worker.stop)
    try:
      loaded = worker.ask('load', job=settings.job(contender, mode, requests))
    except worker_lib.WorkerError as error:
      if contender.engine == contenders.OURS:
        raise
      absent[contender.name] = str(error)
      worker.stop()
      continue
    entries.append(
      Entry(worker, loaded, {count: [] for count in settings.counts})
    )
  return entries, absent


def _run(entry: Entry, count: int) -> None:
  value = entry.worker.ask('run', count=count)
  answers = value.pop('answers')
  tokens = sum(map(len, answers))
  entry.samples[count].append(summary.Sample(tokens=tokens, **value))
  if len(answers) > len(entry.answers):
    entry.answers = answers
