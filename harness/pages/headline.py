"""The head of a run's page: what was run, and what came out."""

from collections.abc import Iterator

from harness.pages import costs
from harness.pages import markup
from harness.results import entry as entry_lib
from harness.rules import rounds

_UNITS = {
  'samples_per_second': 'samples/s',
  'queries_per_second': 'queries/s',
}
# The percentile of the latency that is the result of a scenario.
_PERCENTILE = {rounds.SINGLE_STREAM: '90th', rounds.MULTI_STREAM: '99th'}


def result(
  performance: entry_lib.Performance, scenario: str
) -> tuple[str, str]:
  """The scenario's figure and its unit, for reading."""
  if performance.metric == 'latency_ns':
    percentile = _PERCENTILE.get(scenario, 'tail')
    return (
      markup.number(performance.value / 1e6),
      f'ms, {percentile} percentile',
    )
  unit = _UNITS.get(performance.metric, performance.metric)
  return markup.number(performance.value), unit


def system_name(entry: entry_lib.Entry) -> str:
  """The system's name, else its processors: users may not have named it."""
  description = entry.description
  names = (
    str(description.get(key) or '').strip()
    for key in (
      'system_name',
      'accelerator_model_name',
      'host_processor_model_name',
    )
  )
  return next((name for name in names if name not in ('', 'N/A', '-')), '')


def banner(entry: entry_lib.Entry) -> markup.Html:
  """The page's title."""
  facts = (
    f'round {entry.round}',
    f'system {entry.system}',
    system_name(entry) or 'no system description',
    entry.began,
    f'id {entry.id}',
  )
  return markup.header(
    'MLPerf Inference, a run of the harness',
    f'{entry.model} · {entry.scenario}',
    markup.bullets(facts, 'facts'),
  )


def render(entry: entry_lib.Entry, price_per_hour: float | None) -> markup.Html:
  """The cards of the result."""
  cards: list[markup.Html] = []
  if entry.performance is not None:
    cards += _performance(entry.performance, entry.scenario)
  if entry.accuracy is not None:
    cards.append(_accuracy(entry.accuracy))
  if entry.performance is not None:
    cards += _economy(entry, entry.performance, price_per_hour)
  if not cards:
    cards.append(markup.card('Result', 'none', 'no run was made'))
  return markup.section(
    'result',
    'Result',
    markup.element('dl', *cards, class_='cards'),
    *_warnings(entry),
  )


def badge(valid: bool) -> markup.Html:
  word = 'VALID' if valid else 'INVALID'
  return markup.element('span', word, class_=f'badge {word.lower()}')


def _performance(performance, scenario) -> Iterator[markup.Html]:
  figure, unit = result(performance, scenario)
  yield markup.card(scenario, figure, unit)
  yield markup.card('LoadGen says', badge(performance.valid), 'of the run')
  yield markup.card(
    'Answered',
    f'{performance.samples:,}',
    f'samples in {markup.number(performance.seconds)} s',
  )
  if performance.early_stopping_ns is not None:
    yield markup.card(
      'Official figure',
      markup.number(performance.early_stopping_ns / 1e6),
      "ms, LoadGen's early-stopping estimate",
    )
  if performance.tokens_per_second:
    tokens = markup.number(performance.tokens_per_second)
    yield markup.card('Tokens', tokens, 'tokens/s')


def _accuracy(accuracy) -> markup.Html:
  name = 'rouge1' if 'rouge1' in accuracy.metrics else 'f1'
  figure = accuracy.metrics.get(name)
  detail = {'rouge1': 'ROUGE-1', 'f1': 'F1'}[name]
  if accuracy.reference is not None:
    detail += ', passed' if accuracy.passed else ', NOT passed'
    detail += ' beside the reference'
  shown = '–' if figure is None else f'{figure:.4f}'
  return markup.card('Accuracy', shown, detail)


def _economy(entry, performance, price_per_hour) -> Iterator[markup.Html]:
  if price_per_hour is not None:
    cost = costs.cost(performance, price_per_hour)
    if cost and cost.per_million_tokens is not None:
      figure = markup.number(cost.per_million_tokens)
      yield markup.card('Cost', figure, 'per million generated tokens')
    elif cost:
      figure = markup.number(cost.per_1000_samples)
      yield markup.card('Cost', figure, 'per 1,000 samples')
  for meter, joules in entry.energy.items():
    if performance.samples:
      figure = markup.number(joules / performance.samples)
      yield markup.card('Energy', figure, f'J per sample ({meter})')


def _warnings(entry) -> list[markup.Html]:
  """What a reader must know before quoting the figure."""
  performance = entry.performance
  if performance is None:
    return [
      markup.paragraph(
        'No performance run was made, so there is no speed.', 'note'
      )
    ]
  found = []
  if not performance.valid:
    found.append(
      'LoadGen calls this run INVALID: its figure is no result. The summary'
      ' below says why.'
    )
  problems = entry.notes.get('problems') or []
  found += [f'LoadGen logged an error: {problem}' for problem in problems]
  shortest = rounds.MIN_DURATION_MS / 1000
  if performance.seconds < shortest:
    found.append(
      f'The run lasted {performance.seconds:.1f} s; official runs last at least'
      f' {shortest:.0f} s.'
    )
  return [markup.paragraph(text, 'note') for text in found]
