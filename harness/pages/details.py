"""The end of a run's page: cost, energy, command, versions and system."""

from collections.abc import Iterator
import os
import shlex

from harness.pages import costs
from harness.pages import markup
from harness.results import entry as entry_lib


def render(
  entry: entry_lib.Entry, directory: str, price_per_hour: float | None
) -> list[markup.Html]:
  """The sections after the charts."""
  sections = []
  if entry.performance is not None:
    sections.append(_economy(entry, entry.performance, price_per_hour))
    sections.append(_loadgen(entry, entry.performance, directory))
  sections.append(_command(entry, directory))
  sections.append(_system(entry))
  return sections


def footer(entry: entry_lib.Entry) -> markup.Html:
  return markup.element(
    'footer',
    f'Result {entry.id}, begun {entry.began}, ended {entry.ended}. MLPerf is a'
    ' trademark of MLCommons; this page is no result verified by MLCommons.',
  )


def _economy_rows(
  entry, performance, price_per_hour
) -> Iterator[tuple[str, str]]:
  number = markup.number
  if price_per_hour is not None:
    cost = costs.cost(performance, price_per_hour)
    yield 'Price of the system per hour', number(price_per_hour)
    if cost is not None:
      tokens = number(cost.per_million_tokens)
      yield 'Cost of the performance run', number(cost.run)
      yield 'Cost per 1,000 samples', number(cost.per_1000_samples)
      yield 'Cost per million generated tokens', tokens
  for meter, joules in entry.energy.items():
    yield f'Energy ({meter})', f'{number(joules)} J'
    if performance.seconds > 0:
      watts = number(joules / performance.seconds)
      yield f'Mean power ({meter})', f'{watts} W'
    if performance.samples:
      each = number(joules / performance.samples)
      yield f'Energy per sample ({meter})', f'{each} J'


def _economy(entry, performance, price_per_hour) -> markup.Html:
  rows = list(_economy_rows(entry, performance, price_per_hour))
  if not rows:
    text = (
      'No energy was recorded, and no price was given: --price_per_hour adds'
      ' what a thousand samples and a million tokens cost.'
    )
    return markup.section(
      'economy', 'Cost and energy', markup.paragraph(text, 'note')
    )
  return markup.section(
    'economy',
    'Cost and energy',
    markup.table(
      ('Figure', 'Value'),
      rows,
      "Costs are in the price's currency, at the speed of the performance run",
      class_='pairs',
    ),
  )


def _loadgen(entry, performance, directory) -> markup.Html:
  parts = []
  for title, percentiles in (
    ('Latency', performance.latency_ns),
    ('Time to the first token', performance.first_token_ns),
  ):
    if percentiles:
      parts.append(
        markup.table(
          ('Percentile', *(f'p{float(key):g}' for key in percentiles)),
          [('ms', *(markup.number(v / 1e6) for v in percentiles.values()))],
          f'{title} as LoadGen says',
          class_='numbers',
        )
      )
  if performance.summary:
    parts.append(_fold('Summary of LoadGen', performance.summary))
  user_conf = os.path.join(directory, 'user.conf')
  if os.path.exists(user_conf):
    with open(user_conf, encoding='utf-8', errors='replace') as file:
      parts.append(_fold('user.conf', file.read()))
  if not parts:
    parts.append(markup.paragraph('LoadGen left no summary.', 'note'))
  return markup.section('loadgen', 'LoadGen', *parts)


def _command(entry, directory) -> markup.Html:
  return markup.section(
    'command',
    'How it was made',
    markup.element('pre', markup.element('code', shlex.join(entry.command))),
    markup.pairs(
      {
        'Began': entry.began,
        'Ended': entry.ended,
        'Results lie in': directory,
        "CPU's frequency governor": entry.governor,
      },
      'When and where',
    ),
    markup.pairs(entry.parameters, 'Parameters'),
    markup.pairs(entry.versions, 'Versions'),
    markup.pairs(entry.hashes, 'SHA-256 of what was read'),
    *([markup.pairs(entry.notes, 'Notes')] if entry.notes else []),
  )


def _system(entry) -> markup.Html:
  if not entry.description:
    text = 'No system description was recorded.'
    return markup.section('system', 'System', markup.paragraph(text, 'note'))
  return markup.section(
    'system', 'System', markup.pairs(entry.description, 'System description')
  )


def _fold(title: str, text: str) -> markup.Html:
  return markup.element(
    'details', markup.element('summary', title), markup.element('pre', text)
  )
