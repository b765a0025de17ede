"""Renders the accuracy section of a run's page: scores and thresholds."""

from collections.abc import Mapping, Sequence
import dataclasses

from harness.benchmarks import all as benchmarks
from harness.benchmarks import benchmark as benchmark_lib
from harness.pages import charts
from harness.results import entry as entry_lib

TITLES = {
  'rouge1': 'ROUGE-1',
  'rouge2': 'ROUGE-2',
  'rougeL': 'ROUGE-L',
  'rougeLsum': 'ROUGE-Lsum',
  'f1': 'F1',
  'exact_match': 'exact match',
  'gen_len': 'characters generated (gen_len)',
  'gen_num': 'answers (gen_num)',
}


@dataclasses.dataclass(frozen=True)
class Scores:
  """The accuracy section of the page.

  Attributes:
    note: The verdict as text.
    headings: The headings of the table.
    rows: The rows of the table.
  """

  note: str
  headings: Sequence[str]
  rows: Sequence[Sequence[str]]


def scores(
  entry: entry_lib.Entry,
  set_size: int | None,
  figures: dict[str, charts.Figure],
) -> Scores:
  """Returns the scores of a result, and adds their chart to `figures`."""
  accuracy = entry.accuracy
  assert accuracy is not None
  benchmark = benchmarks.get(entry.benchmark)
  full = benchmark.full_set
  beside: list[tuple[str, Mapping[str, float]]] = []
  size = 'The number of samples in the set was not recorded.'
  if set_size is not None:
    size = f'The set has {set_size:,} samples.'
  if set_size == full:
    beside = [
      (f'threshold {100 * share:g} %', benchmark.least(model))
      for model, share in benchmark.models.items()
    ]
    note = _official_note(benchmark, entry.model, accuracy)
  elif accuracy.reference is not None:
    beside = [('recorded reference', accuracy.reference)]
    verdict = 'passed' if accuracy.passed else 'did NOT pass'
    note = (
      f'{size} The official thresholds apply only to the whole official set of'
      f' {full:,}, so this run is compared with the recorded reference for the'
      f' same data. The run {verdict}. {accuracy.identical:,} answers are'
      ' identical to the reference.'
    )
  else:
    note = (
      f'{size} The official thresholds apply only to the whole official set of'
      f' {full:,}, and no reference was recorded for this data. The scores are'
      ' therefore not compared.'
    )
  columns = [('this run', accuracy.metrics), *beside]
  names = [
    name for name in benchmark.scores if accuracy.metrics.get(name) is not None
  ]
  if names:
    figures['accuracy'] = charts.scores(
      {name: TITLES[name] for name in names}, columns
    )
  return Scores(
    note,
    ['Score', *(title for title, _ in columns)],
    [
      (
        TITLES.get(name, name),
        *(_digits(values.get(name)) for _, values in columns),
      )
      for name, value in accuracy.metrics.items()
      if value is not None  # rougeLsum needs the user's data.
    ],
  )


def _official_note(
  benchmark: benchmark_lib.Benchmark, model: str, accuracy: entry_lib.Accuracy
) -> str:
  level = 100 * benchmark.models[model]
  missed = [
    TITLES[name] for name, _, _ in benchmark.missed(model, accuracy.metrics)
  ]
  unknown = [
    TITLES[name]
    for name in benchmark.least(model)
    if accuracy.metrics.get(name) is None
  ]
  verdict = f'reaches {level:g} % of the reference model'
  if missed:
    verdict = f'misses the target of {model} in {", ".join(missed)}'
  return (
    'The set has as many samples as the official set. By the official'
    f' thresholds, this run {verdict}.'
    + (f' {", ".join(unknown)} was not computed.' if unknown else '')
  )


def _digits(value: float | None) -> str:
  if value is None:
    return '–'
  return f'{value:,.0f}' if float(value).is_integer() else f'{value:,.4f}'
