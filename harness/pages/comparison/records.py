"""One line of a comparison: a result of ours, or one that was published."""

import dataclasses

from harness.pages import costs
from harness.pages import headline
from harness.results import entry as entry_lib
from harness.rules import rounds

# From v4.1 on, GPT-J's official unit is tokens/s, which LoadGen infers at this
# many tokens for every sample.
INFERRED_TOKENS = 69

SAMPLES = 'Samples/s'
QUERIES = 'Queries/s'
TOKENS = 'Tokens/s'
LATENCY = 'Latency (ms)'

_RATES = {rounds.OFFLINE: SAMPLES, rounds.SERVER: QUERIES}


@dataclasses.dataclass(frozen=True)
class Record:
  """A result in one scenario.

  Attributes:
    ours: whether the harness here made it.
    origin: id of our result, or the file that published it.
    submitter: organization; empty for ours.
    system: its name.
    platform: short name of the system in a submission; ours: what answered.
    division: closed, open, network, or "not submitted".
    round: such as "v4.1".
    model: such as gptj-99.
    scenario: LoadGen's name.
    result: the scenario's figure, in `unit`.
    unit: as the official tables call it. GPT-J's tokens/s are samples/s here,
      so that all rounds can be compared.
    published: the figure as it was published, where `result` differs.
    accelerators: how many of which.
    accelerator_count: how many; None without any, or where nobody says.
    score: figure of the accuracy's first metric: ROUGE-1, F1, ...
    accuracy: all metrics, as text.
    latency_ms: 99th percentile; of single streams the 90th. None if unknown.
    joules_per_sample: None where no energy was measured.
    cost_per_1000: of samples; None without a price.
    remark: what must be known beside the figure.
  """

  ours: bool
  origin: str
  submitter: str
  system: str
  platform: str
  division: str
  round: str
  model: str
  scenario: str
  result: float
  unit: str
  published: str = ''
  accelerators: str = ''
  accelerator_count: int | None = None
  score: float | None = None
  accuracy: str = ''
  latency_ms: float | None = None
  joules_per_sample: float | None = None
  cost_per_1000: float | None = None
  remark: str = ''


def of_entry(
  entry: entry_lib.Entry, set_size: int | None, price_per_hour: float | None
) -> Record:
  """The record of a result of ours.

  Raises:
    ValueError: it has no performance run, so there is nothing to compare.
  """
  performance = entry.performance
  if performance is None:
    raise ValueError(
      f'result {entry.id} has no performance run, so it cannot be compared;'
      ' run it with --mode=performance, or leave it out'
    )
  streams = performance.metric == 'latency_ns'
  metrics = entry.accuracy.metrics if entry.accuracy else {}
  first = 'f1' if entry.benchmark == rounds.BERT else 'rouge1'
  cost = (
    None if price_per_hour is None else costs.cost(performance, price_per_hour)
  )
  description = entry.description
  count = _count(description.get('accelerators_per_node'))
  return Record(
    ours=True,
    origin=entry.id,
    submitter='',
    system=headline.system_name(entry) or entry.system,
    platform=entry.system,
    division='not submitted',
    round=entry.round,
    model=entry.model,
    scenario=entry.scenario,
    result=_result(performance, streams),
    unit=LATENCY if streams else _RATES.get(entry.scenario, SAMPLES),
    accelerators=accelerators(
      count, str(description.get('accelerator_model_name') or '')
    ),
    accelerator_count=count,
    score=metrics.get(first),
    accuracy=', '.join(
      f'{k}: {v:g}' for k, v in metrics.items() if v is not None
    ),
    latency_ms=_latency(performance, streams),
    joules_per_sample=_joules(entry, performance),
    cost_per_1000=cost.per_1000_samples if cost else None,
    remark='; '.join(_remarks(entry, performance, set_size)),
  )


def accelerators(count: int | None, name: str) -> str:
  """Such as "8x NVIDIA H100"; empty without any."""
  if not count or name.strip() in ('', '-', 'N/A'):
    return ''
  return f'{count}x {name}'


def cost(record: Record, prices: dict[str, float]) -> float | None:
  """Cost of 1,000 samples at the price of a published record's system.

  A price that names no system is that of ours and holds for no other.
  """
  if record.unit not in (SAMPLES, QUERIES) or not record.result:
    return None
  for name in (record.system, record.platform):
    if name and name in prices:
      return prices[name] / 3600 / record.result * 1000
  return None


def _result(performance, streams) -> float:
  """The figure as official results show it."""
  if not streams:
    return performance.value
  estimate = performance.early_stopping_ns
  return (performance.value if estimate is None else estimate) / 1e6


def _latency(performance, streams) -> float | None:
  if streams:
    return performance.value / 1e6
  nanoseconds = performance.latency_ns.get('99.00')
  return None if nanoseconds is None else nanoseconds / 1e6


def _joules(entry, performance) -> float | None:
  if not entry.energy or not performance.samples:
    return None
  return sum(entry.energy.values()) / performance.samples


def _remarks(entry, performance, set_size) -> list[str]:
  found = []
  if not performance.valid:
    found.append('INVALID')
  if performance.seconds < rounds.MIN_DURATION_MS / 1000:
    found.append(f'run of {performance.seconds:.1f} s')
  if set_size != rounds.FULL_SET[entry.benchmark]:
    size = 'unknown size' if set_size is None else f'{set_size:,} samples'
    found.append(f'not the official set ({size})')
  return found


def _count(value: object) -> int | None:
  try:
    return int(str(value))
  except ValueError:
    return None  # "N/A" and the like, which system descriptions may say.
