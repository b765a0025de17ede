"""The page that compares results of ours with each other and with official ones.

The table is complete without JavaScript; with it, it can be sorted and filtered
and has charts.
"""

from collections.abc import Callable, Sequence
import dataclasses

from harness.pages import markup
from harness.pages.comparison import records

_CAVEAT = (
  'What stands side by side here need not be comparable. Results of the closed'
  ' division come from the same model, data and rules, and were reviewed by'
  ' MLCommons; the open division may change model and accuracy; in the network'
  ' division LoadGen asks over a network. Results of this harness were not'
  ' submitted and not reviewed: beside official ones they mean something only'
  ' with the official model, the official set, and runs of 600 s that are'
  ' VALID. Their remarks say what is missing of that.'
)
_TOKENS = (
  'GPT-J is shown in samples/s in all rounds. From v4.1 on its official results'
  f' are in tokens/s, inferred at {records.INFERRED_TOKENS} tokens a sample; the'
  ' remarks tell the published figure.'
)
_ENERGY = (
  'Energy of official results is measured at the wall; ours is what the meters'
  ' of processor and accelerators say.'
)

# Filters: field of the record, and title.
_FILTERS = (
  ('model', 'Benchmark'),
  ('scenario', 'Scenario'),
  ('round', 'Round'),
  ('division', 'Division'),
)
# What the bars can show: field, title and whether more is better.
_FIGURES = (
  ('result', 'result'),
  ('per_accelerator', 'result per accelerator'),
  ('score', 'accuracy (first metric)'),
  ('joules_per_sample', 'energy per sample (J)'),
  ('cost_per_1000', 'cost per 1,000 samples'),
)


@dataclasses.dataclass(frozen=True)
class _Column:
  """A column: its title, what it shows, and whether these are figures."""

  key: str
  title: str
  show: Callable[[records.Record], object]
  number: bool = False


def _figure(key: str, title: str) -> _Column:
  return _Column(
    key, title, lambda each: markup.number(getattr(each, key)), True
  )


_COLUMNS = (
  _Column('system', 'System', lambda each: _system(each)),
  _Column(
    'submitter', 'Submitter', lambda each: each.submitter or 'this harness'
  ),
  _Column('division', 'Division', lambda each: each.division),
  _Column('round', 'Round', lambda each: each.round),
  _Column('model', 'Benchmark', lambda each: each.model),
  _Column('scenario', 'Scenario', lambda each: each.scenario),
  _figure('result', 'Result'),
  _Column('unit', 'Unit', lambda each: each.unit),
  _Column(
    'accelerators', 'Accelerators', lambda each: each.accelerators or '–'
  ),
  _figure('latency_ms', 'Latency (ms)'),
  _Column('score', 'Accuracy', lambda each: _accuracy(each)),
  _figure('joules_per_sample', 'J per sample'),
  _figure('cost_per_1000', 'Cost per 1,000'),
  _Column('remark', 'Remarks', lambda each: _remark(each)),
)


def render(found: Sequence[records.Record]) -> str:
  """The page as HTML.

  Raises:
    ValueError: there is no record.
  """
  if not found:
    raise ValueError('there is no result to compare')
  ordered = sorted(found, key=_order)
  ours = sum(each.ours for each in ordered)
  facts = [f'{ours} of this harness', f'{len(ordered) - ours} published']
  header = markup.header(
    'MLPerf Inference',
    'Results side by side',
    markup.bullets(facts, 'facts'),
  )
  main = markup.element(
    'main',
    _notes(ordered),
    _controls(ordered),
    _charts(),
    _table(ordered),
    id='main',
  )
  data = [dataclasses.asdict(each) for each in ordered]
  return markup.document(
    'Results side by side',
    markup.element(
      'div', header, main, markup.data('records', data), class_='broad'
    ),
    ['charts.js', 'compare.js'],
    charts=True,
  )


def _order(each: records.Record) -> tuple:
  """Ours first, then by benchmark and scenario, the best first."""
  better = each.result if each.unit.startswith('Latency') else -each.result
  return (not each.ours, each.model, each.scenario, each.unit, better)


def _notes(found) -> markup.Html:
  published = [each for each in found if not each.ours]
  if published:
    texts = [_CAVEAT]
  else:
    texts = ['All results are of this harness; none was submitted or reviewed.']
  if any(each.published for each in published):
    texts.append(_TOKENS)
  if any(each.joules_per_sample is not None for each in published):
    texts.append(_ENERGY)
  return markup.section(
    'caveat',
    'What may be compared',
    *(markup.paragraph(text, 'note') for text in texts),
  )


def _controls(found) -> markup.Html:
  # A page about our results opens with their benchmark, if they have one.
  models = {each.model for each in found if each.ours}
  chosen = {'model': models.pop() if len(models) == 1 else ''}
  fields = [
    _select(
      f'filter-{key}',
      title,
      [('', 'all'), *((v, v) for v in _values(found, key))],
      chosen.get(key, ''),
    )
    for key, title in _FILTERS
  ]
  fields.append(
    markup.Html(
      '<div><label for="filter-text">System or submitter contains</label>'
      '<input type="search" id="filter-text" autocomplete="off"></div>'
    )
  )
  fields.append(_select('figure', 'Bars show', _FIGURES, _FIGURES[0][0]))
  return markup.section(
    'choose',
    'Choose',
    markup.element('form', *fields, class_='controls', id='filters'),
    markup.element('p', '', id='shown', role='status'),
  )


def _select(identifier, title, options, chosen) -> markup.Html:
  label = markup.element('label', title, for_=identifier)
  return markup.element(
    'div', label, markup.choice(identifier, options, chosen)
  )


def _values(found, key) -> list[str]:
  return sorted({getattr(each, key) for each in found} - {''})


def _charts() -> markup.Html:
  return markup.section(
    'bars',
    'By scenario',
    markup.element('p', '', id='drawn', role='status'),
    markup.element('div', '', id='charts'),
    markup.Html(
      '<noscript><p class="note">The charts need JavaScript; the table below'
      ' holds all figures.</p></noscript>'
    ),
  )


def _table(found) -> markup.Html:
  empty = {
    column.key
    for column in _COLUMNS
    if column.number
    and all(getattr(each, column.key) is None for each in found)
  }
  columns = [column for column in _COLUMNS if column.key not in empty]
  head = (
    markup.element(
      'th',
      markup.element('button', column.title, type='button'),
      scope='col',
      data_key=column.key,
      class_='number' if column.number else None,
    )
    for column in columns
  )
  body = (
    markup.element(
      'tr',
      *(_cell(column, each) for column in columns),
      data_row=i,
      class_='ours' if each.ours else None,
    )
    for i, each in enumerate(found)
  )
  table = markup.table_of(
    head,
    body,
    'A click on a heading sorts by that column',
    id='results',
    class_='dense',
  )
  return markup.section('table', 'All figures', table)


def _cell(column, each) -> markup.Html:
  shown = column.show(each)
  if column.key == 'system':
    return markup.element('th', shown, scope='row')
  return markup.element('td', shown, class_='number' if column.number else None)


def _system(each) -> str:
  return f'{each.system} ({each.platform})' if each.ours else each.system


def _accuracy(each) -> object:
  """The first metric; all of them where the pointer rests on it."""
  if each.score is None:
    return each.accuracy or '–'
  name = each.accuracy.partition(':')[0]
  return markup.element('span', f'{name} {each.score:.2f}', title=each.accuracy)


def _remark(each) -> str:
  parts = [each.remark]
  if each.published:
    parts.append(f'published as {each.published}')
  if each.ours:
    parts.append(f'id {each.origin}')
  return '; '.join(part for part in parts if part) or '–'
