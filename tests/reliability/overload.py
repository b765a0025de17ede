"""Sends several times as many requests as a server can answer.

Greedy clients with different rates send requests continuously and never retry.
One fair client sends only its share. If names are not verified, the server
distinguishes clients by host. The fair client therefore uses the other loopback
address.
"""

from collections.abc import Sequence
import contextlib
import dataclasses
import statistics
import time

from tests.chaos import processes
from tests.reliability import served as served_lib
from tests.reliability.clients import traffic as traffic_lib
from tests.reliability.results import figures
from tests.reliability.results import meters

_SLOTS = 16
_TOKENS = 4
_OVERRIDES = {
  'BATCH_SIZE': str(_SLOTS),
  'MAX_LIVE_BATCHES': '4',
  'MAX_DECODE_STEPS': str(_TOKENS),
  'MIN_DECODE_STEPS': '1',
}
_REFUSED = 'RESOURCE_EXHAUSTED'
# The shares of the greedy clients in the excess requests.
_GREED = (0.65, 0.25, 0.10)
# The rate of the fair client, as a share of the capacity.
_FAIR = 0.1
_AFTER_SECS = 2.0


@dataclasses.dataclass(frozen=True)
class Plan:
  """The durations and the rate.

  Attributes:
    step_secs: The duration of a step of the engine.
    measure_secs: The duration of the measurement of the capacity.
    secs: The duration of the overload.
    times: The rate of the overload, as a multiple of the capacity.
    quiet_secs: The quiet time before and after.
  """

  step_secs: float = 0.05
  measure_secs: float = 10.0
  secs: float = 60.0
  times: float = 5.0
  quiet_secs: float = 5.0

  @property
  def theory(self) -> float:
    """The maximum rate of answers of the engine, in requests per second."""
    return _SLOTS / (_TOKENS * self.step_secs)


SHORT = Plan(measure_secs=2.0, secs=5.0, quiet_secs=2.0)


def measure(
  directory: str, plan: Plan = Plan(), strict: bool = True
) -> list[figures.Figure]:
  """Returns the figures of the table's row.

  Args:
    directory: An empty directory.
    plan: The durations and the rate.
    strict: True if times count; False if the machine may be too busy for them.
  """
  flags = [f'--step_secs={plan.step_secs}']
  with served_lib.start(directory, flags, _OVERRIDES) as served:
    capacity = _capacity(served, plan)
    fair_flags = _flags(served, _FAIR * capacity, '[::1]')
    with traffic_lib.Traffic(served.cell.path, 'fair', *fair_flags) as fair:
      begin = time.monotonic()
      time.sleep(plan.quiet_secs)
      quiet = (begin, time.monotonic())
      greedy, flood, readings = _flood(served, plan, capacity)
      time.sleep(_AFTER_SECS + plan.quiet_secs)
      calls = fair.calls()
    return [
      figures.Figure('capacity measured before', capacity, 'requests/s'),
      *_goodput(greedy, calls, flood, capacity, strict),
      *_refusals(greedy, flood, strict),
      *_fairness(calls, quiet, flood, strict),
      figures.Figure(
        "peak of the server's memory, second half of it over the first",
        _peak_growth(readings),
        'MB',
        most=5.0 if strict else None,
      ),
    ]


def _peak_growth(readings: Sequence[meters.Reading]) -> float:
  """Returns the growth of the peaks in MB.

  Memory grows and shrinks with garbage collections, so only peaks are compared.
  """
  half = len(readings) // 2
  first, second = (
    max(r.memory for r in part) for part in (readings[:half], readings[half:])
  )
  return second - first


def _flags(served: served_lib.Served, rate: float, host: str) -> list[str]:
  port = served.servers[0].address.rpartition(':')[2]
  return [
    *served.client_flags,
    f'--address={host}:{port}',
    f'--rate={rate}',
    f'--tokens={_TOKENS}',
    '--fail_fast',
    '--timeout=20',
  ]


def _capacity(served: served_lib.Served, plan: Plan) -> float:
  """Measures the answered requests per second at a slightly higher rate."""
  flags = _flags(served, 1.4 * plan.theory, '127.0.0.1')
  with traffic_lib.Traffic(served.cell.path, 'capacity', *flags) as asks:
    time.sleep(1.0)
    begin = time.monotonic()
    time.sleep(plan.measure_secs)
    end = time.monotonic()
  answered = _answered(asks.calls(), begin, end)
  return answered / (end - begin)


def _flood(
  served: served_lib.Served, plan: Plan, capacity: float
) -> tuple[
  list[traffic_lib.Call], tuple[float, float], Sequence[meters.Reading]
]:
  """Sends too many requests.

  Returns:
    All calls of the greedy clients, the time window, and samples of the server.
  """
  readings = []
  rate = (plan.times - _FAIR) * capacity
  with contextlib.ExitStack() as stack:
    clients = [
      stack.enter_context(
        traffic_lib.Traffic(
          served.cell.path,
          f'greedy{i}',
          *_flags(served, part * rate, '127.0.0.1'),
        )
      )
      for i, part in enumerate(_GREED)
    ]
    begin = time.monotonic()
    while time.monotonic() < begin + plan.secs:
      time.sleep(plan.secs / 40)
      reading = meters.read(served.servers[0].popen.pid)
      if reading:
        readings.append(reading)
    flood = (begin, time.monotonic())
    for client in clients:
      client.process.kill()  # Clients that wait for answers are killed too.
  return [c for client in clients for c in client.calls()], flood, readings


def _answered(
  calls: Sequence[traffic_lib.Call], begin: float, end: float
) -> int:
  """Counts the calls that were answered between two times."""
  return sum(c.code == 'OK' and begin <= c.begin + c.secs < end for c in calls)


def _goodput(greedy, fair, flood, capacity, strict) -> list[figures.Figure]:
  begin, end = flood
  sent = len(traffic_lib.within([*greedy, *fair], [flood]))
  rate = _answered([*greedy, *fair], begin, end) / (end - begin)
  return [
    figures.Figure('sent meanwhile', sent / (end - begin), 'requests/s'),
    figures.Figure(
      'answered, of the capacity',
      100 * rate / capacity,
      '%',
      least=90 if strict else 50,
    ),
  ]


def _refusals(greedy, flood, strict) -> list[figures.Figure]:
  ended = traffic_lib.within(greedy, [flood])
  refused = [c for c in ended if c.code.startswith(_REFUSED)]
  unhinted = [c for c in refused if not c.code.endswith('+hint')]
  other = [c for c in ended if c.code != 'OK' and c not in refused]
  secs = [c.secs for c in refused] or [0.0]
  return [
    figures.Figure('refused', len(refused), least=1),
    figures.none_of('refused without a retry hint', unhinted),
    figures.none_of('calls that failed otherwise', other),
    figures.Figure(
      'refused within (p99)',
      1e3 * processes.percentile(secs, 99),
      'ms',
      most=20 if strict else None,
    ),
  ]


def _fairness(fair, quiet, flood, strict) -> list[figures.Figure]:
  """Returns the fair client's figures before, during and after the flood."""
  before = traffic_lib.within(fair, [quiet])
  meanwhile = traffic_lib.within(fair, [flood])
  after = traffic_lib.within(fair, [(flood[1] + _AFTER_SECS, float('inf'))])
  good = sum(c.code == 'OK' for c in meanwhile)
  usual, later = (
    statistics.median([c.secs for c in calls] or [float('inf')])
    for calls in (before, after)
  )
  return [
    figures.Figure(
      'answered of what the fair client asked',
      100 * good / max(1, len(meanwhile)),
      '%',
      least=90,
    ),
    figures.Figure('calls from 2 s after it', len(after), least=1),
    figures.none_of('of those failed', [c for c in after if c.code != 'OK']),
    figures.Figure(
      'their median latency, over that before',
      later / usual,
      most=1.25 if strict else None,
    ),
  ]
