"""The table of figures, as text and as a page."""

from collections.abc import Mapping, Sequence

from harness.pages import markup
from tests.reliability.results import figures
from tests.reliability.results import table

# The outcome of each row that is shown, by its key.
Outcomes = Mapping[str, figures.Outcome]


def choose(outcomes: Sequence[figures.Outcome]) -> dict[str, figures.Outcome]:
  """Of each row the full form, or the short one if there is no other."""
  chosen: dict[str, figures.Outcome] = {}
  for outcome in outcomes:
    if outcome.form == 'full' or outcome.row not in chosen:
      chosen[outcome.row] = outcome
  return chosen


def text(outcomes: Outcomes) -> str:
  """The table for a terminal, row by row."""
  lines = []
  for row in table.ROWS:
    outcome = outcomes.get(row.key)
    lines.append(f'{row.key:>7}  {row.title}: {_verdict(outcome)}')
    if outcome is None:
      continue
    lines.append(f'{"":9}{_when(outcome)}')
    if outcome.error:
      lines.append(f'{"":9}did not come to its end: {outcome.error}')
    for figure in outcome.figures:
      lines.append(
        f'{"":9}{_yes(figure):4}{figure.name}: {figure.reached}'
        + (f' (to reach: {figure.goal})' if figure.goal else '')
      )
  return '\n'.join(lines)


def html(outcomes: Outcomes) -> str:
  """The page."""
  met = sum(o.met for o in outcomes.values())
  cards = markup.element(
    'dl',
    markup.card('Rows met', f'{met} of {len(table.ROWS)}'),
    markup.card(
      'Run in full',
      sum(o.form == 'full' for o in outcomes.values()),
      'others in their short forms, where times do not count',
    ),
    markup.card(
      'Figures met',
      sum(f.met for o in outcomes.values() for f in o.figures if f.goal),
      f'of {sum(bool(f.goal) for o in outcomes.values() for f in o.figures)}',
    ),
    class_='cards',
  )
  overview = markup.table(
    ('Row', 'What is done to the cell', 'Met', 'Form', 'When (UTC)', 'Commit'),
    [_overview(row, outcomes.get(row.key)) for row in table.ROWS],
    'Each row with its verdict; its figures are below.',
  )
  details = [
    _details(row, outcomes[row.key])
    for row in table.ROWS
    if row.key in outcomes
  ]
  first = markup.section('overview', 'Overview', cards, overview)
  body = markup.join(
    [
      markup.header('Reliability of a Sax cell', 'What a cell survives'),
      markup.element('main', first, *details, id='main'),
    ]
  )
  return markup.document('Reliability of a Sax cell', body, [], charts=False)


def _overview(
  row: table.Row, outcome: figures.Outcome | None
) -> Sequence[object]:
  if outcome is None:
    return (row.key, row.title, 'not run', '–', '–', '–')
  link = markup.element('a', row.title, href=f'#row-{row.key}')
  return (
    row.key,
    link,
    _verdict(outcome),
    outcome.form,
    outcome.date[:16].replace('T', ' '),
    outcome.commit or '–',
  )


def _details(row: table.Row, outcome: figures.Outcome) -> markup.Html:
  parts: list[object] = [markup.paragraph(_when(outcome), 'note')]
  if outcome.error:
    parts.append(
      markup.paragraph(f'It did not come to its end: {outcome.error}')
    )
  if outcome.figures:
    parts.append(
      markup.table(
        ('Figure', 'To reach', 'Reached', 'Met'),
        [
          (f.name, f.goal or '–', f.reached, _yes(f) or '–')
          for f in outcome.figures
        ],
        f'Figures of row {row.key}: {"all" if outcome.met else "not all"} met.',
      )
    )
  return markup.section(f'row-{row.key}', f'{row.key}: {row.title}', *parts)


def _verdict(outcome: figures.Outcome | None) -> str:
  if outcome is None:
    return 'not run'
  return 'yes' if outcome.met else 'no'


def _yes(figure: figures.Figure) -> str:
  if not figure.goal:
    return ''
  return 'yes' if figure.met else 'NO'


def _when(outcome: figures.Outcome) -> str:
  date = outcome.date.replace('T', ' ').removesuffix('+00:00')
  return (
    f'{outcome.form} form, {date} UTC, {outcome.seconds:.0f} s, commit'
    f' {outcome.commit or "unknown"}; {outcome.machine}'
  )
