"""The report's text: plain tables, every figure of speed called an estimate."""

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from saxml_ext.aot.report import chips
from saxml_ext.aot.report import lengths as lengths_lib
from saxml_ext.aot.report import live
from saxml_ext.aot.report import predict
from saxml_ext.aot.report import roofline
from saxml_ext.aot.report import rules
from saxml_ext.aot.report.compiled import costs

_GIB = 2**30

Row = tuple[str, ...]


def table(rows: Iterable[Row]) -> str:
  """Rows of cells in columns; the first is flush left, the others right."""
  rows = list(rows)
  widths = [max(map(len, column)) for column in zip(*rows)]
  lines = []
  for first, *others in rows:
    cells = [first.ljust(widths[0])]
    cells += [cell.rjust(width) for cell, width in zip(others, widths[1:])]
    lines.append('  ' + '  '.join(cells).rstrip())
  return '\n'.join(lines)


def terms() -> str:
  """Returns the terms of the rule in its three forms."""

  def row(name: str, values: Callable[[rules.Rule], str]) -> Row:
    return (name, *map(values, rules.RULES))

  return table(
    [
      row('term', lambda r: r.name),
      row('HBM bandwidth, of the peak', lambda r: f'{r.hbm:.0%}'),
      row(
        "products and kernels, x XLA's cycles", lambda r: f'{r.computing:.2f}'
      ),
      row("elementwise, x XLA's cycles", lambda r: f'{r.elementwise:.2f}'),
      row("copies, x XLA's cycles", lambda r: f'{r.copies:.2f}'),
      row(
        'operation without an estimate, us', lambda r: f'{1e6 * r.launch:.0f}'
      ),
      row('links, of the peak', lambda r: f'{r.link:.0%}'),
      row('start of a collective, us a hop', lambda r: f'{1e6 * r.hop:.1f}'),
      row('exchange', lambda r: 'beside work' if r.overlap else 'after work'),
      row('host, ms a decode call', lambda r: f'{1e3 * r.host:.0f}'),
      row('steps per token of an answer', lambda r: f'{r.steps:.3f}'),
      row(
        'a static batch decodes',
        lambda r: '128 steps' if r.always_longest else 'to its last',
      ),
    ]
  )


def programs(made: costs.Set, requests: lengths_lib.Lengths) -> str:
  """Milliseconds of each program: by all rules, and the central one's parts."""
  where, slots = _topology(made), live.of(made, requests)
  rows: list[Row] = [
    (
      'ms (estimates)',
      *(rule.name for rule in rules.RULES),
      *rules.PARTS,
    )
  ]
  for name, cost in timed(made):
    seconds = [rules.seconds(cost, where, r, slots) for r in rules.RULES]
    parts = rules.parts(cost, where, rules.CENTRAL, slots)
    values = (*seconds, *(parts[part] for part in rules.PARTS))
    rows.append((name, *(f'{1e3 * value:.2f}' for value in values)))
  return table(rows) + _unknown_kernels(made)


def _unknown_kernels(made: costs.Set) -> str:
  """A warning about kernels of which only the bytes are known."""
  unknown = {
    f'{call.name} ({name})'
    for name, cost in timed(made)
    for call in cost.kernels
    if call.bundles is None
  }
  if not unknown:
    return ''
  return (
    '\n  Only the bytes of these kernels are known, so they count for too'
    f' little: {", ".join(sorted(unknown))}.'
  )


def timed(made: costs.Set) -> list[tuple[str, costs.Cost]]:
  """What the tables show of a set: its steps of decoding, then its prefills."""
  found = []
  for key in sorted(made.programs, key=_numbers):
    program = made.programs[key]
    if program.step is not None:
      found.append((f'{key}, a step', program.step))
      found.append((f'{key}, a call', program.once))
  for key in sorted(made.programs, key=_numbers):
    program = made.programs[key]
    if program.step is None:
      name = key.replace('_and_insert', '').replace(' 0 ', ' x ')
      found.append((name, program.once))
  return found


def _numbers(key: str) -> tuple[str, list[int]]:
  """Orders programs by name, then by size."""
  name, *sizes = key.split()
  return name, [int(size) for size in sizes]


def memory(made: costs.Set) -> str:
  """GiB of each chip; what XLA planned, no estimate of ours."""
  kinds = ('peak', 'arguments', 'temporaries', 'code')
  rows: list[Row] = [('GiB per chip (XLA)', *kinds)]
  for key in sorted(made.programs, key=_numbers):
    program = made.programs[key]
    if program.memory:
      sizes = (program.memory[kind] / _GIB for kind in kinds)
      rows.append((key, *(f'{size:.2f}' for size in sizes)))
  limit = chips.of(made.topology).chip.hbm / _GIB
  return table(rows) + f'\n  Of {limit:.2f} GiB that programs may use.'


def floor(made: costs.Set, requests: lengths_lib.Lengths) -> str:
  """Each program beside the least that the chips allow."""
  topology, slots = _topology(made), live.of(made, requests)
  rows: list[Row] = [('', 'floor ms', 'estimate ms', 'estimate / floor')]
  found = dict(timed(made))
  for name, point in roofline.points(made, requests, predict.policy(made)):
    if name in found:
      seconds = rules.seconds(found[name], topology, rules.CENTRAL, slots)
      values = (1e3 * point.seconds, 1e3 * seconds, seconds / point.seconds)
      rows.append((name, *(f'{value:.2f}' for value in values)))
  most = roofline.samples_per_second(made, requests)
  return (
    table(rows)
    + '\n  Offline at the peaks of arithmetic and memory, with every slot busy'
    f' and no padding: {most:.0f} samples/s.'
  )


def shares(
  made: costs.Set,
  requests: lengths_lib.Lengths,
  central: predict.Prediction,
) -> str:
  """Returns the parts of an Offline run, and the share without a measurement.

  Args:
    made: The programs.
    requests: The requests of the run.
    central: The prediction by the central rule.
  """
  found = predict.shares(made, requests, central)
  rows = [(name, f'{share:.0%}') for name, share in found.items()]
  unmeasured = 1 - sum(found[part] for part in rules.MEASURED)
  return (
    table([('share of the time (estimates), central rule', ''), *rows])
    + f'\n  No measurement on a TPU covers {unmeasured:.0%} of the time. The rest'
    ' follows single operations that were measured on a v5e.'
  )


def predictions(
  made: costs.Set, by_rule: Mapping[str, predict.Prediction]
) -> str:
  """Samples per second by each rule; ends in the lines that people look for."""
  rows: list[Row] = [('samples/s (estimates)', *by_rule)]
  rows.append(('Offline', *(f'{p.offline:.1f}' for p in by_rule.values())))
  if all(p.server is not None for p in by_rule.values()):
    servers = (f'{p.server:.1f}' for p in by_rule.values())
    rows.append(('Server, p99 within 20 s', *servers))
  outcomes = [p.outcome for p in by_rule.values() if p.outcome is not None]
  if len(outcomes) == len(by_rule):
    rows += [
      ('time in prefills', *(f'{o.prefill_share:.0%}' for o in outcomes)),
      ('slots busy', *(f'{o.busy:.0%}' for o in outcomes)),
      ('tokens padded to', *(f'{o.padding:.2f} x' for o in outcomes)),
    ]
  return table(rows) + '\n\n' + '\n'.join(headlines(made, by_rule))


def headlines(
  made: costs.Set, by_rule: Mapping[str, predict.Prediction]
) -> list[str]:
  """The central rule's figures, one line each."""
  central = by_rule[rules.CENTRAL.name]
  where = f'{made.topology}, {made.weights}'
  lines = [f'Offline, {where}: {central.offline:.1f} samples/s (estimate)']
  if central.server is not None:
    lines.append(f'Server, {where}: {central.server:.1f} samples/s (estimate)')
  return lines


def sax(
  found: Sequence[tuple[predict.Published, Mapping[str, predict.Prediction]]],
) -> str:
  """What was published beside what the rules say of the same configuration."""
  rows: list[Row] = [
    (
      'Sax, samples/s',
      'measured',
      *(f'{rule.name} (estimate)' for rule in rules.RULES),
      'central / measured',
    )
  ]
  for published, by_rule in found:
    for scenario, measured in (
      ('Offline', published.offline),
      ('Server', published.server),
    ):
      values = [
        getattr(by_rule[rule.name], scenario.lower()) for rule in rules.RULES
      ]
      if None in values:
        continue
      central = getattr(by_rule[rules.CENTRAL.name], scenario.lower())
      rows.append(
        (
          f'{published.name} {scenario}',
          f'{measured:.2f}',
          *(f'{value:.2f}' for value in values),
          f'{central / measured:.2f}',
        )
      )
  return table(rows)


def lengths(requests: lengths_lib.Lengths) -> str:
  """What is assumed or counted about the requests."""
  rows: list[Row] = [('tokens', 'mean', '10 %', 'median', '90 %', 'largest')]
  for name, values in (
    ('prompts', requests.prompts),
    ('outputs', requests.outputs),
  ):
    marks = (*np.percentile(values, [10, 50, 90]), values.max())
    rows.append((name, f'{values.mean():.0f}', *(f'{m:.0f}' for m in marks)))
  return f'  {len(requests)} requests; {requests.source}.\n' + table(rows)


def path(
  sets: Sequence[tuple[str, float, float, float, float]],
) -> str:
  """Configurations side by side, in the order they were tried.

  Args:
    sets: title, milliseconds of a step, of prefill per 1,000 tokens, GiB of the
      largest program, Offline samples/s by the central rule.
  """
  rows: list[Row] = [
    (
      'configuration',
      'step ms',
      'prefill ms / 1,000',
      'peak GiB',
      'Offline samples/s (estimate)',
    )
  ]
  for title, step, prefill, peak, offline in sets:
    rows.append(
      (title, f'{step:.1f}', f'{prefill:.1f}', f'{peak:.2f}', f'{offline:.1f}')
    )
  return table(rows)


def _topology(made: costs.Set) -> chips.Slice:
  return chips.of(made.topology)
