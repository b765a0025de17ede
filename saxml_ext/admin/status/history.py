"""The last minutes of a cell, for plots: what its servers said each second.

Servers of other kinds do not tell their counters; for them rates are their own
figures, which are means over the last minute.
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
# Rates are means over so many samples: servers are asked twice a second, at
# times of their own.
_SPAN = 4

_Info = modelet_pb2.GetStatusResponse.ModelWithStatus


@dataclasses.dataclass(frozen=True)
class Figures:
  """What one model does, on one server or on several together.

  Attributes:
    answers: answered calls a second.
    tokens: generated a second; of answers that are complete.
    errors: calls a second that were refused or failed.
    p50, p99: seconds; of several servers the largest. None without answers.
    queued, running, slots: requests waiting and in slots, and slots.
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
    when: monotonic seconds.
    figures: by address of the server and id of the model.
  """

  when: float
  figures: dict[tuple[str, str], Figures]


def total(figures: Iterable[Figures]) -> Figures:
  """Those of several servers or models together."""
  found = list(figures)
  values: dict[str, Any] = {}
  for field in dataclasses.fields(Figures):
    each = (getattr(one, field.name) for one in found)
    known = [value for value in each if value is not None]
    largest = field.name in ('p50', 'p99')
    values[field.name] = max(known, default=None) if largest else sum(known)
  return Figures(**values)


class History:
  """Takes samples of the cell that this process leads, while it does.

  Attributes:
    samples: oldest first, SAMPLES at most.
  """

  def __init__(
    self, controller: Callable[[], controller_lib.Controller | None]
  ):
    """`controller` returns that of the cell, None while others lead."""
    self.samples: collections.deque[Sample] = collections.deque(maxlen=SAMPLES)
    self._controller = controller
    # Seen last: when, calls answered, tokens, calls refused or failed.
    self._counted: dict[
      tuple[str, str], collections.deque[tuple[float, int, int, int]]
    ] = {}

  async def run(self) -> None:
    """Takes a sample each second, until it is cancelled."""
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
    """The newest figures, of one model or server if it is named."""
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
      seen.clear()  # The model was loaded anew.
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
  """Figures of a sample, of one model or server if it is named."""
  return [
    figures
    for (address, model_id), figures in sample.figures.items()
    if model in (None, model_id) and server in (None, address)
  ]
