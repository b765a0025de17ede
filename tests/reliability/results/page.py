"""Formats the table of figures as text and as an HTML page."""

from collections.abc import Mapping, Sequence
import pathlib

from saxml_ext.common.pages import page_kit
from tests.reliability.results import figures
from tests.reliability.results import table

_TEMPLATE = pathlib.Path(__file__).parent / 'templates' / 'reliability.html'

# The outcome of each row to show, by its key.
Outcomes = Mapping[str, figures.Outcome]


def choose(outcomes: Sequence[figures.Outcome]) -> dict[str, figures.Outcome]:
  """Returns the full form of each row, or the short one without a full one."""
  chosen: dict[str, figures.Outcome] = {}
  for outcome in outcomes:
    if outcome.form == 'full' or outcome.row not in chosen:
      chosen[outcome.row] = outcome
  return chosen


def text(outcomes: Outcomes) -> str:
  """Returns the table as text for a terminal."""
  lines = []
  for row in table.ROWS:
    outcome = outcomes.get(row.key)
    lines.append(f'{row.key:>7}  {row.title}: {_verdict(outcome)}')
    if outcome is None:
      continue
    lines.append(f'{"":9}{_when(outcome)}')
    if outcome.error:
      lines.append(f'{"":9}was not completed: {outcome.error}')
    for figure in outcome.figures:
      lines.append(
        f'{"":9}{_yes(figure):4}{figure.name}: {figure.reached}'
        + (f' (to reach: {figure.goal})' if figure.goal else '')
      )
  return '\n'.join(lines)


def html(outcomes: Outcomes) -> str:
  """Returns the table as an HTML page."""
  rows = [
    (row, outcome, _verdict(outcome), _when(outcome) if outcome else '')
    for row in table.ROWS
    for outcome in [outcomes.get(row.key)]
  ]
  return page_kit.render(
    _TEMPLATE,
    rows=rows,
    met=sum(o.met for o in outcomes.values()),
    full=sum(o.form == 'full' for o in outcomes.values()),
    goals=[f for o in outcomes.values() for f in o.figures if f.goal],
    figures={
      key: [
        (f.name, f.goal or '–', f.reached, _yes(f) or '–') for f in o.figures
      ]
      for key, o in outcomes.items()
    },
  )


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
