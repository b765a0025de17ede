"""The accuracy section of a run's page: scores beside what judges them."""

from harness.pages import charts
from harness.pages import markup
from harness.results import entry as entry_lib
from harness.rules import requirements
from harness.rules import rounds

_NAMES = {
  rounds.GPTJ: ('rouge1', 'rouge2', 'rougeL'),
  rounds.BERT: ('f1', 'exact_match'),
}
_TITLES = {
  'rouge1': 'ROUGE-1',
  'rouge2': 'ROUGE-2',
  'rougeL': 'ROUGE-L',
  'rougeLsum': 'ROUGE-Lsum',
  'f1': 'F1',
  'exact_match': 'exact match',
  'gen_len': 'characters generated (gen_len)',
  'gen_num': 'answers (gen_num)',
}


def render(
  entry: entry_lib.Entry,
  set_size: int | None,
  figures: dict[str, charts.Figure],
) -> markup.Html:
  """The section, and its chart among the figures."""
  accuracy = entry.accuracy
  if accuracy is None:
    text = 'No accuracy run was made: nothing is known of the answers.'
    return markup.section(
      'accuracy', 'Accuracy', markup.paragraph(text, 'note')
    )
  official = set_size == rounds.FULL_SET[entry.benchmark]
  if official:
    beside = _thresholds(entry.benchmark)
    note = _official_note(entry, accuracy)
  elif accuracy.reference is not None:
    beside = [('recorded reference', dict(accuracy.reference))]
    note = _reference_note(accuracy, entry.benchmark, set_size)
  else:
    beside = []
    note = (
      f'{_size(set_size)} The official thresholds hold for the whole official'
      f' set of {rounds.FULL_SET[entry.benchmark]:,} only, and no reference was'
      ' recorded for these data: so the scores stand alone.'
    )
  names = [
    name
    for name in _NAMES[entry.benchmark]
    if accuracy.metrics.get(name) is not None
  ]
  parts: list[markup.Html] = [markup.paragraph(note)]
  if names:
    figures['accuracy'] = charts.scores(
      [_TITLES[name] for name in names],
      _titled(accuracy.metrics, names),
      [(title, _titled(values, names)) for title, values in beside],
    )
    parts.append(
      markup.chart('accuracy', 'Scores', 'Scores in percent; higher is better.')
    )
  parts.append(_table(accuracy, beside))
  return markup.section('accuracy', 'Accuracy', *parts)


def _thresholds(benchmark) -> list[tuple[str, dict[str, float]]]:
  return [
    (f'threshold {100 * requirements.SHARES[model]:g} %', dict(least))
    for model, least in requirements.ACCURACY.items()
    if rounds.MODELS[model] == benchmark
  ]


def _official_note(entry, accuracy) -> str:
  level = 100 * requirements.SHARES[entry.model]
  missed = [
    name
    for name, bound in requirements.ACCURACY[entry.model].items()
    if (accuracy.metrics.get(name) or 0.0) < bound
  ]
  verdict = (
    f'reaches {level:g} % of the reference model'
    if not missed
    else f'misses what {entry.model} must reach in '
    + ', '.join(_TITLES[name] for name in missed)
  )
  return (
    'The set has as many samples as the official one. Measured by the official'
    f' thresholds, this run {verdict}.'
  )


def _reference_note(accuracy, benchmark, set_size) -> str:
  verdict = 'passed' if accuracy.passed else 'did NOT pass'
  return (
    f'{_size(set_size)} The official thresholds hold for the whole official set'
    f' of {rounds.FULL_SET[benchmark]:,} only; beside this run stands the'
    f' reference that was recorded on the same data. The run {verdict};'
    f' {accuracy.identical:,} answers are identical to the reference.'
  )


def _size(set_size) -> str:
  if set_size is None:
    return 'How many samples the set has was not recorded.'
  return f'The set has {set_size:,} samples.'


def _titled(values, names) -> dict[str, float]:
  return {_TITLES[name]: values[name] for name in names if name in values}


def _table(accuracy, beside) -> markup.Html:
  rows = []
  for name, value in accuracy.metrics.items():
    if value is None:
      continue  # Such as rougeLsum, which needs data that a user brings.
    cells = [figures.get(name) for _, figures in beside]
    rows.append((_TITLES.get(name, name), _digits(value), *map(_digits, cells)))
  return markup.table(
    ['Score', 'this run', *(title for title, _ in beside)],
    rows,
    'Scores as the evaluation prints them',
    class_='numbers',
  )


def _digits(value) -> str:
  if value is None:
    return '–'
  return f'{value:,.0f}' if float(value).is_integer() else f'{value:,.4f}'
