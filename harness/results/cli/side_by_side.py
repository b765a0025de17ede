"""Results side by side."""

from collections.abc import Callable, Mapping, Sequence
import dataclasses

from harness.results import entry as entry_lib
from harness.results.cli import views

_NONE = '-'
_IDENTITY = ('model', 'scenario', 'round', 'system')


@dataclasses.dataclass(frozen=True)
class _Measure:
  """A figure that entries may have: label of its row, value, form of a cell."""

  label: str
  get: Callable[[entry_lib.Entry], float | None]
  form: str


def rows(entries: Sequence[entry_lib.Entry]) -> list[tuple[str, ...]]:
  """Rows of a table: what is compared, then a cell for each entry.

  A figure of another entry than the first has its ratio to the first's beside
  it, where both are figures of the same kind.

  Args:
    entries: at least one.
  """
  table = [('', *(each.id for each in entries))]
  for name in _IDENTITY:
    table.append((name, *(getattr(each, name) for each in entries)))
  table.append(('valid', *map(_validity, entries)))
  table.append(_results(entries))
  for measure in _MEASURES:
    values = [measure.get(each) for each in entries]
    if any(value is not None for value in values):
      cells = [
        _NONE if value is None else measure.form.format(value)
        for value in values
      ]
      table.append((measure.label, *_with_ratios(cells, values)))
  return table


def _validity(entry: entry_lib.Entry) -> str:
  return views.validity(entry.performance) if entry.performance else _NONE


def _results(entries: Sequence[entry_lib.Entry]) -> tuple[str, ...]:
  """The row of the scenarios' own figures, comparable where of one kind."""
  runs = [each.performance for each in entries]
  metric = runs[0].metric if runs[0] else None
  cells = [views.figure(run) if run else _NONE for run in runs]
  values = [run.value if run and run.metric == metric else None for run in runs]
  return ('result', *_with_ratios(cells, values))


def _with_ratios(cells: list[str], values: Sequence[float | None]) -> list[str]:
  base = values[0]
  return cells[:1] + [
    f'{cell} ({value / base:.3f}x)' if value is not None and base else cell
    for cell, value in zip(cells[1:], values[1:])
  ]


def _tokens(entry: entry_lib.Entry) -> float | None:
  return entry.performance.tokens_per_second if entry.performance else None


def _latency(percentile: str) -> Callable[[entry_lib.Entry], float | None]:
  def get(entry: entry_lib.Entry) -> float | None:
    run = entry.performance
    return _ms(run.latency_ns, percentile) if run else None

  return get


def _first_token(entry: entry_lib.Entry) -> float | None:
  run = entry.performance
  return _ms(run.first_token_ns, '50.00') if run else None


def _ms(values: Mapping[str, float], percentile: str) -> float | None:
  return values[percentile] / 1e6 if percentile in values else None


def _metric(name: str) -> Callable[[entry_lib.Entry], float | None]:
  def get(entry: entry_lib.Entry) -> float | None:
    return entry.accuracy.metrics.get(name) if entry.accuracy else None

  return get


_MEASURES = (
  _Measure('tokens/s', _tokens, '{:.1f}'),
  _Measure('p50 latency', _latency('50.00'), '{:.3f} ms'),
  _Measure('p90 latency', _latency('90.00'), '{:.3f} ms'),
  _Measure('p99 latency', _latency('99.00'), '{:.3f} ms'),
  _Measure('p50 first token', _first_token, '{:.3f} ms'),
  _Measure('ROUGE-1', _metric('rouge1'), '{:.4f}'),
  _Measure('ROUGE-2', _metric('rouge2'), '{:.4f}'),
  _Measure('ROUGE-L', _metric('rougeL'), '{:.4f}'),
  _Measure('F1', _metric('f1'), '{:.4f}'),
  _Measure('exact match', _metric('exact_match'), '{:.4f}'),
)
