"""Renders the page that compares our results with published results.

The table is complete without JavaScript. JavaScript adds sorting, filters and
charts.
"""

from collections.abc import Iterator, Sequence
import dataclasses
import pathlib

from harness.benchmarks import all as benchmarks
from harness.pages import costs
from harness.results import entry as entry_lib
from harness.rules import rounds
from saxml_ext.common.pages import plotly_charts

_TEMPLATE = pathlib.Path(__file__).parent / 'templates' / 'compare.html'

# Since v4.1, official GPT-J results are in tokens/s. LoadGen infers the tokens
# from this number of tokens per sample.
INFERRED_TOKENS = 69

SAMPLES = 'Samples/s'
QUERIES = 'Queries/s'
TOKENS = 'Tokens/s'
LATENCY = 'Latency (ms)'

# The unit of the rate in each scenario.
RATES = {rounds.OFFLINE: SAMPLES, rounds.SERVER: QUERIES}

_CAVEAT = (
  'The results on this page may not be comparable. Results of the closed'
  ' division come from the same model, data and rules, and MLCommons reviewed'
  ' them. The open division may change the model and the accuracy. In the'
  ' network division, LoadGen sends samples over a network. Results of this'
  ' harness were neither submitted nor reviewed. They are comparable with'
  ' official results only if they use the official model, the official set,'
  ' and VALID runs of 600 s. Their remarks name what differs.'
)
_TOKENS = (
  'GPT-J results are in samples/s in all rounds. Since v4.1, its official'
  f' results are in tokens/s, inferred from {INFERRED_TOKENS} tokens per'
  ' sample. The remarks show the published figure.'
)
_ENERGY = (
  'The energy of official results is measured at the wall. Ours is measured by'
  ' the meters of the processor and the accelerators.'
)

# The field of the record and the title of each filter.
_FILTERS = (
  ('model', 'Benchmark'),
  ('scenario', 'Scenario'),
  ('round', 'Round'),
  ('division', 'Division'),
)
# The field of the record and the title of each column, and True if the column
# holds numbers.
_COLUMNS = (
  ('system', 'System', False),
  ('submitter', 'Submitter', False),
  ('division', 'Division', False),
  ('round', 'Round', False),
  ('model', 'Benchmark', False),
  ('scenario', 'Scenario', False),
  ('result', 'Result', True),
  ('unit', 'Unit', False),
  ('accelerators', 'Accelerators', False),
  ('latency_ms', 'Latency (ms)', True),
  ('score', 'Accuracy', False),
  ('joules_per_sample', 'J per sample', True),
  ('cost_per_1000', 'Cost per 1,000', True),
  ('remark', 'Remarks', False),
)


@dataclasses.dataclass(frozen=True)
class Record:
  """A result in one scenario.

  Attributes:
    ours: True if this harness measured the result.
    origin: The id of our result, or the name of the file with the published
      result.
    submitter: The organization; empty for our results.
    system: The name of the system.
    platform: The short name of the system in a submission. For our results, the
      kind of system under test.
    division: The division: closed, open, network, or "not submitted".
    round: The round, such as "v4.1".
    model: The model, such as gptj-99.
    scenario: LoadGen's name of the scenario.
    result: The scenario's figure, in `unit`.
    unit: The unit in the official tables, except that tokens/s of GPT-J are
      converted to samples/s so that all rounds can be compared.
    published: The published figure, if `result` differs from it.
    accelerators: The number and the name of the accelerators.
    accelerator_count: The number of accelerators, or None if there are none or
      the number is unknown.
    score: The first accuracy metric: ROUGE-1, F1, ...
    accuracy: All accuracy metrics, as text.
    latency_ms: The 99th percentile of the latency (SingleStream: the 90th), or
      None if it is unknown.
    joules_per_sample: The energy per sample, or None if it was not measured.
    cost_per_1000: The cost of 1,000 samples, or None without a price.
    remark: The caveats to show with the figure.
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


def from_entry(
  entry: entry_lib.Entry, set_size: int | None, price_per_hour: float | None
) -> Record:
  """Returns the record of one of our results.

  Raises:
    ValueError: The result has no performance run to compare.
  """
  run = entry.performance
  if run is None:
    raise ValueError(
      f'Result {entry.id} has no performance run, so it cannot be compared.'
      ' Run it with --mode=performance, or omit it.'
    )
  metrics = entry.accuracy.metrics if entry.accuracy else {}
  benchmark = benchmarks.get(entry.benchmark)
  cost = None if price_per_hour is None else costs.cost(run, price_per_hour)
  count = str(entry.description.get('accelerators_per_node')).strip()
  accelerator_count = int(count) if count.isdecimal() else None
  result, latency = run.value, run.latency_ns.get('99.00')
  unit = RATES.get(entry.scenario, SAMPLES)
  if rounds.SCENARIOS[entry.scenario].streams:
    unit, latency = LATENCY, run.value
    result = (run.early_stopping_ns or run.value) / 1e6
  elif benchmark.uses_tokens and run.tokens_per_second:
    unit, result = TOKENS, run.tokens_per_second
  return Record(
    ours=True,
    origin=entry.id,
    submitter='',
    system=costs.system_name(entry) or entry.system,
    platform=entry.system,
    division='not submitted',
    round=entry.round,
    model=entry.model,
    scenario=entry.scenario,
    result=result,
    unit=unit,
    accelerators=accelerators(
      accelerator_count,
      str(entry.description.get('accelerator_model_name') or ''),
    ),
    accelerator_count=accelerator_count,
    score=metrics.get(benchmark.scores[0]),
    accuracy=', '.join(
      f'{k}: {v:g}' for k, v in metrics.items() if v is not None
    ),
    latency_ms=None if latency is None else latency / 1e6,
    joules_per_sample=sum(entry.energy.values()) / run.samples
    if entry.energy and run.samples
    else None,
    cost_per_1000=cost.per_1000_samples if cost else None,
    remark='; '.join(_remarks(entry, run, set_size)),
  )


def accelerators(count: int | None, name: str) -> str:
  """Returns a text such as "8x NVIDIA H100"; empty without accelerators."""
  if not count or name.strip() in ('', '-', 'N/A'):
    return ''
  return f'{count}x {name}'


def cost(record: Record, prices: dict[str, float]) -> float | None:
  """Returns the cost of 1,000 samples at the price of a published system.

  A price without a system name applies to our system only.
  """
  if record.unit not in RATES.values() or not record.result:
    return None
  for name in (record.system, record.platform):
    if name and name in prices:
      return prices[name] / 3600 / record.result * 1000
  return None


def _remarks(
  entry: entry_lib.Entry, run: entry_lib.Performance, set_size: int | None
) -> Iterator[str]:
  if not run.valid:
    yield 'INVALID'
  for name, values in (
    ('TTFT', run.first_token_ns),
    ('TPOT', run.per_token_ns),
  ):
    if run.per_token_ns:
      yield f'p99 {name} {values["99.00"] / 1e6:.1f} ms'
  if run.seconds < rounds.MIN_DURATION_MS / 1000:
    yield f'run of {run.seconds:.1f} s'
  if set_size != benchmarks.get(entry.benchmark).full_set:
    size = 'unknown size' if set_size is None else f'{set_size:,} samples'
    yield f'not the official set ({size})'


def render(records: Sequence[Record]) -> str:
  """Returns the page as HTML.

  Raises:
    ValueError: There are no records.
  """
  if not records:
    raise ValueError('There are no results to compare.')
  ordered = sorted(records, key=_order)
  ours = [record for record in ordered if record.ours]
  # If all our results are of one model, the page initially shows that model.
  models = {record.model for record in ours}
  empty = {
    key
    for key, _, number in _COLUMNS
    if number and all(getattr(record, key) is None for record in ordered)
  }
  return plotly_charts.render(
    _TEMPLATE,
    found=ordered,
    ours=len(ours),
    notes=list(_notes([record for record in ordered if not record.ours])),
    filters=_FILTERS,
    model=models.pop() if len(models) == 1 else '',
    columns=[column for column in _COLUMNS if column[0] not in empty],
    records=[dataclasses.asdict(record) for record in ordered],
  )


def _order(record: Record) -> tuple:
  """Returns a sort key: ours first, then by model and scenario, best first."""
  sign = 1 if record.unit.startswith('Latency') else -1
  better = sign * record.result
  return (not record.ours, record.model, record.scenario, record.unit, better)


def _notes(published: Sequence[Record]) -> Iterator[str]:
  if not published:
    yield 'All results come from this harness. None was submitted or reviewed.'
    return
  yield _CAVEAT
  if any(record.published for record in published):
    yield _TOKENS
  if any(record.joules_per_sample is not None for record in published):
    yield _ENERGY
