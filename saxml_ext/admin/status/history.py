"""Keeps the last minutes of a cell for plots, with one sample per second.

Some kinds of servers do not report their counters. Their rates are the ones
that they report themselves, which are means over the last minute.
"""

import asyncio
import collections
from collections.abc import Callable, Iterable
import dataclasses
import time
from typing import Any

from saxml_ext.admin import controller as controller_lib
from saxml_ext.admin.modelet import modelets
from saxml_ext.protobuf import modelet_pb2

SAMPLES = 300
PERIOD_SECS = 1.0
# Rates are means over this many samples, because servers are polled twice a
# second, at varying times.
_SPAN = 4

_Info = modelet_pb2.GetStatusResponse.ModelWithStatus


@dataclasses.dataclass(frozen=True)
class Figures:
  """The load of one model on one server, or the sum of several.

  Attributes:
    answers: The number of answered calls per second.
    tokens: The number of generated tokens per second, in complete answers.
    errors: The number of calls per second that were refused or failed.
    p50, p99: The latencies in seconds; the largest ones of several servers.
      None without answers.
    queued, running, slots: The numbers of waiting requests, of requests in
      slots, and of slots.
  """

  answers: float = 0.0
  tokens: float = 0.0
  errors: float = 0.0
  p50: float | None = None
  p99: float | None = None
  queued: int = 0
  running: int = 0
  slots: int = 0


@dataclasses.dataclass(frozen=True)
class Sample:
  """The cell at one moment.

  Attributes:
    when: The time in monotonic seconds.
    figures: The figures by the address of the server and the id of the model.
  """

  when: float
  figures: dict[tuple[str, str], Figures]


def total(figures: Iterable[Figures]) -> Figures:
  """Adds up the figures of several servers or models."""
  rows = list(figures)
  values: dict[str, Any] = {}
  for field in dataclasses.fields(Figures):
    column = (getattr(one, field.name) for one in rows)
    known = [value for value in column if value is not None]
    largest = field.name in ('p50', 'p99')
    values[field.name] = max(known, default=None) if largest else sum(known)
  return Figures(**values)


class History:
  """Takes samples of the cell while this process leads it.

  Attributes:
    samples: The samples, oldest first, SAMPLES at most.
  """

  def __init__(
    self, controller: Callable[[], controller_lib.Controller | None]
  ):
    """Takes no sample yet.

    Args:
      controller: A function that returns the cell's controller, or None while
        another server leads.
    """
    self.samples: collections.deque[Sample] = collections.deque(maxlen=SAMPLES)
    self._controller = controller
    # Each entry has a time, and the numbers of answered calls, of tokens, and
    # of refused or failed calls.
    self._counted: dict[
      tuple[str, str], collections.deque[tuple[float, int, int, int]]
    ] = {}

  async def run(self) -> None:
    """Takes a sample each second until it is cancelled."""
    while True:
      self.take(time.monotonic())
      await asyncio.sleep(PERIOD_SECS)

  def take(self, now: float) -> None:
    """Takes a sample."""
    controller = self._controller()
    if controller is None:
      self.samples.clear()
      self._counted.clear()
      return
    figures = {
      (server.address, info.model_key): self._figures(server, info)
      for server in controller.members.all()
      for info in server.status.models
    }
    self._counted = {k: v for k, v in self._counted.items() if k in figures}
    self.samples.append(Sample(now, figures))

  def latest(
    self, model: str | None = None, server: str | None = None
  ) -> Figures:
    """Returns the newest figures, of one model or server if it is given."""
    if not self.samples:
      return Figures()
    return total(chosen(self.samples[-1], model, server))

  def _figures(self, server: modelets.Modelet, info: _Info) -> Figures:
    stats = info.method_stats

    def largest(name: str) -> float | None:
      return max(
        (getattr(s, name) for s in stats if s.HasField(name)), default=None
      )

    own = Figures(
      answers=sum(s.successes_per_second for s in stats),
      errors=sum(s.errors_per_second for s in stats),
      p50=largest('p50_latency_on_success_per_second'),
      p99=largest('p99_latency_on_success_per_second'),
      queued=sum(s.pending_reqs for s in stats),
    )
    if not info.HasField('load'):
      return own
    load = info.load
    answers, tokens, errors = self._rates(
      (server.address, info.model_key),
      (
        server.last_seen,
        load.answered,
        load.output_tokens,
        load.refused + load.failed,
      ),
    )
    return dataclasses.replace(
      own,
      answers=answers,
      tokens=tokens,
      errors=errors,
      queued=load.queued,
      running=load.running,
      slots=load.slots,
    )

  def _rates(
    self, key: tuple[str, str], counted: tuple[float, int, int, int]
  ) -> tuple[float, float, float]:
    seen = self._counted.setdefault(key, collections.deque(maxlen=_SPAN))
    if seen and counted[1:] < seen[-1][1:]:
      seen.clear()  # The model was loaded again.
    if not seen or counted[0] > seen[-1][0]:
      seen.append(counted)
    passed = seen[-1][0] - seen[0][0]
    if not passed:
      return 0.0, 0.0, 0.0
    a, b, c = (max(0, seen[-1][i] - seen[0][i]) / passed for i in (1, 2, 3))
    return a, b, c


def chosen(
  sample: Sample, model: str | None = None, server: str | None = None
) -> list[Figures]:
  """Returns the figures of a sample, of one model or server if it is given."""
  return [
    figures
    for (address, model_id), figures in sample.figures.items()
    if model in (None, model_id) and server in (None, address)
  ]
