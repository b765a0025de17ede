"""The plots and figures of the status pages: of the cell, a model, a server."""

from collections.abc import Callable
import statistics

from saxml_ext.admin.status import history as history_lib
from saxml_ext.admin.status import markup
from saxml_ext.admin.status import plots

# More lines cannot be told apart; the rest is added up.
_MOST_LINES = 7
_BESIDES = 'others'


def tiles(now: history_lib.Figures) -> str:
  """The newest figures, large."""
  return markup.tiles(
    [
      (_number(now.answers), 'answers/s'),
      (_number(now.tokens), 'output tokens/s'),
      (_seconds(now.p50), 'latency, p50'),
      (_seconds(now.p99), 'latency, p99'),
      (str(now.queued), 'requests in the queue'),
      (f'{now.running} of {now.slots}', 'slots in use'),
    ]
  )


def figures(
  history: history_lib.History,
  model: str | None = None,
  server: str | None = None,
) -> str:
  """Plots of a cell by model; of one model or server if it is named."""
  samples = list(history.samples)
  if len(samples) < 2:
    return markup.paragraph('Plots begin in a moment.')
  newest = samples[-1].when
  ages = [newest - sample.when for sample in samples]
  names = _names(samples, model, server)

  def lines(
    value: Callable[[history_lib.Figures], float | None],
  ) -> list[tuple[str, plots.Values]]:
    return [
      (
        name,
        [
          value(
            history_lib.total(
              f for one in ids for f in history_lib.chosen(sample, one, server)
            )
          )
          for sample in samples
        ],
      )
      for name, ids in names
    ]

  def whole(
    value: Callable[[history_lib.Figures], float | None],
  ) -> plots.Values:
    return [
      value(history_lib.total(history_lib.chosen(sample, model, server)))
      for sample in samples
    ]

  return (
    '<div class="plots">'
    + plots.plot('Throughput', 'answers/s', ages, lines(lambda f: f.answers))
    + plots.plot('Generated', 'tokens/s', ages, lines(lambda f: f.tokens))
    + plots.plot(
      'Latency',
      's',
      ages,
      [('p50', whole(lambda f: f.p50)), ('p99', whole(lambda f: f.p99))],
    )
    + plots.plot(
      'Requests',
      '',
      ages,
      [
        ('in slots', whole(lambda f: f.running)),
        ('in the queue', whole(lambda f: f.queued)),
        ('refused or failed a second', whole(lambda f: f.errors)),
      ],
    )
    + '</div>'
  )


def _names(
  samples: list[history_lib.Sample], model: str | None, server: str | None
) -> list[tuple[str, list[str]]]:
  """Lines by model: name and ids; the busiest ones, and the others as one."""
  if model is not None:
    return [(model, [model])]
  ids = sorted({m for sample in samples for _, m in sample.figures})
  if len(ids) > _MOST_LINES:
    ids.sort(key=lambda i: -_mean_answers(samples, i, server))
  # By name, for colours that stay.
  lines = [(i, [i]) for i in sorted(ids[:_MOST_LINES])]
  if rest := ids[_MOST_LINES:]:
    lines.append((_BESIDES, rest))
  return lines


def _mean_answers(
  samples: list[history_lib.Sample], model: str, server: str | None
) -> float:
  return statistics.fmean(
    history_lib.total(history_lib.chosen(sample, model, server)).answers
    for sample in samples
  )


def load(now: history_lib.Figures) -> tuple[str, str, str, str]:
  """Cells of a table: queue, slots, answers/s and p99, '' if not known."""
  if not now.slots:
    return '', '', '', ''
  return (
    str(now.queued),
    f'{now.running}/{now.slots}',
    _number(now.answers),
    '' if now.p99 is None else f'{now.p99:.3f}',
  )


def _number(value: float) -> str:
  return f'{value:.1f}' if value < 100 else f'{value:.0f}'


def _seconds(value: float | None) -> str:
  if value is None:
    return '–'
  return f'{value * 1e3:.0f} ms' if value < 1 else f'{value:.2f} s'
