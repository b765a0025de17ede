"""Renders the accuracy section of a run's page: scores and thresholds."""

from collections.abc import Mapping, Sequence
import dataclasses

from harness.pages import charts
from harness.results import entry as entry_lib
from harness.rules import requirements
from harness.rules import rounds

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
_DRAWN = {
  rounds.GPTJ: ('rouge1', 'rouge2', 'rougeL'),
  rounds.BERT: ('f1', 'exact_match'),
  **dict.fromkeys(rounds.LLAMAS, ('rouge1', 'rouge2', 'rougeL', 'rougeLsum')),
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
  full = rounds.FULL_SET[entry.benchmark]
  beside: list[tuple[str, Mapping[str, float]]] = []
  size = 'The number of samples in the set was not recorded.'
  if set_size is not None:
    size = f'The set has {set_size:,} samples.'
  if set_size == full:
    beside = [
      (f'threshold {100 * requirements.SHARES[model]:g} %', least)
      for model, least in requirements.ACCURACY.items()
      if rounds.MODELS[model] == entry.benchmark
    ]
    note = _official_note(entry, accuracy)
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
    name
    for name in _DRAWN[entry.benchmark]
    if accuracy.metrics.get(name) is not None
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


def _official_note(entry: entry_lib.Entry, accuracy: entry_lib.Accuracy) -> str:
  level = 100 * requirements.SHARES[entry.model]
  missed = [
    TITLES[name]
    for name, _, _ in requirements.missed(entry.model, accuracy.metrics)
  ]
  unknown = [
    TITLES[name]
    for name in requirements.ACCURACY[entry.model]
    if accuracy.metrics.get(name) is None
  ]
  verdict = f'reaches {level:g} % of the reference model'
  if missed:
    verdict = f'misses the target of {entry.model} in {", ".join(missed)}'
  return (
    'The set has as many samples as the official set. By the official'
    f' thresholds, this run {verdict}.'
    + (f' {", ".join(unknown)} was not computed.' if unknown else '')
  )


def _digits(value: float | None) -> str:
  if value is None:
    return '–'
  return f'{value:,.0f}' if float(value).is_integer() else f'{value:,.4f}'
