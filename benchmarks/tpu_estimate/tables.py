"""Formats the report's tables, which mark all speeds as estimates."""

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from benchmarks.tpu_estimate import benchmarks
from benchmarks.tpu_estimate import lengths as lengths_lib
from benchmarks.tpu_estimate import predict
from benchmarks.tpu_estimate import roofline
from benchmarks.tpu_estimate import rules
from benchmarks.tpu_estimate.compiled import costs
from saxml_ext.common.pages import text_columns

_GIB = 2**30

Row = tuple[str, ...]


def table(rows: Iterable[Row]) -> str:
  """Returns rows in columns. The first is left-aligned, the others right."""
  return text_columns.render(rows, indent='  ')


_TERMS: Sequence[tuple[str, Callable[[rules.Rule], str]]] = (
  ('term', lambda r: r.name),
  ('HBM bandwidth, of the peak', lambda r: f'{r.hbm:.0%}'),
  ("products and kernels, x XLA's cycles", lambda r: f'{r.computing:.2f}'),
  ("elementwise, x XLA's cycles", lambda r: f'{r.elementwise:.2f}'),
  ("copies, x XLA's cycles", lambda r: f'{r.copies:.2f}'),
  ('operation without an estimate, us', lambda r: f'{1e6 * r.launch:.0f}'),
  ('links, of the peak', lambda r: f'{r.link:.0%}'),
  ('start of a collective, us a hop', lambda r: f'{1e6 * r.hop:.1f}'),
  ('exchange', lambda r: 'beside work' if r.overlap else 'after work'),
  ('host, ms a decode call', lambda r: f'{1e3 * r.host:.0f}'),
  ('host, us a message of a stream', lambda r: f'{1e6 * r.message:.0f}'),
  ('steps per token of an answer of beams', lambda r: f'{r.steps:.3f}'),
  (
    'a static batch decodes',
    lambda r: '128 steps' if r.always_longest else 'to its last',
  ),
)


def terms() -> str:
  """Returns the terms of the rule in its three forms."""
  return table((name, *map(value, rules.RULES)) for name, value in _TERMS)


def programs(made: costs.Set, requests: lengths_lib.Lengths) -> str:
  """Returns the milliseconds of each program, by all rules and by part."""
  topology, slots = rules.topology_of(made), rules.live(made, requests)
  names = (rule.name for rule in rules.RULES)
  rows: list[Row] = [('ms (estimates)', *names, *rules.PARTS)]
  for name, cost in timed(made):
    seconds = [rules.seconds(cost, topology, r, slots) for r in rules.RULES]
    parts = rules.parts(cost, topology, rules.CENTRAL, slots)
    values = (*seconds, *(parts[part] for part in rules.PARTS))
    rows.append((name, *(f'{1e3 * value:.2f}' for value in values)))
  return table(rows) + _unknown_kernels(made)


def _unknown_kernels(made: costs.Set) -> str:
  """Returns a warning about kernels without a count of bundles."""
  unknown = {
    f'{call.name} ({name})'
    for name, cost in timed(made)
    for call in cost.kernels
    if call.bundles is None
  }
  warning = (
    '\n  Only the bytes of these kernels are known, so they count for too'
    f' little: {", ".join(sorted(unknown))}.'
  )
  return warning if unknown else ''


def timed(made: costs.Set) -> list[tuple[str, costs.Cost]]:
  """Returns the costs in the tables: steps of decoding, then prefills."""
  steps, prefills = [], []
  for key in sorted(made.programs, key=_numbers):
    program = made.programs[key]
    if program.step is not None:
      steps.append((f'{key}, a step', program.step))
      steps.append((f'{key}, a call', program.once))
    else:
      name = key.replace('_and_insert', '').replace(' 0 ', ' x ')
      prefills.append((name, program.once))
  return steps + prefills


def _numbers(key: str) -> tuple[str, list[int]]:
  """Returns a sort key that orders programs by name, then by size."""
  name, *sizes = key.split()
  return name, [int(size) for size in sizes]


def memory(made: costs.Set) -> str:
  """Returns the GiB on each chip. These are XLA's values, not estimates."""
  kinds = ('peak', 'arguments', 'temporaries', 'code')
  rows: list[Row] = [('GiB per chip (XLA)', *kinds)]
  for key in sorted(made.programs, key=_numbers):
    program = made.programs[key]
    if program.memory:
      sizes = (program.memory[kind] / _GIB for kind in kinds)
      rows.append((key, *(f'{size:.2f}' for size in sizes)))
  limit = rules.topology_of(made).chip.hbm / _GIB
  return table(rows) + f'\n  Of {limit:.2f} GiB that programs may use.'


def floor(made: costs.Set, requests: lengths_lib.Lengths) -> str:
  """Returns the estimate of each program and its lower bound."""
  topology, slots = rules.topology_of(made), rules.live(made, requests)
  rows: list[Row] = [('', 'floor ms', 'estimate ms', 'estimate / floor')]
  costs_by_name = dict(timed(made))
  for name, point in roofline.points(made, requests, predict.policy(made)):
    if name in costs_by_name:
      seconds = rules.seconds(
        costs_by_name[name], topology, rules.CENTRAL, slots
      )
      values = (1e3 * point.seconds, 1e3 * seconds, seconds / point.seconds)
      rows.append((name, *(f'{value:.2f}' for value in values)))
  most = roofline.samples_per_second(made, requests)
  return (
    table(rows)
    + '\n  Offline at the peaks of arithmetic and memory, with every slot busy'
    f' and no padding: {most:.0f} samples/s.'
  )


def shares(
  made: costs.Set, requests: lengths_lib.Lengths, central: predict.Prediction
) -> str:
  """Returns the parts of an Offline run, and the share without a measurement.

  Args:
    made: The programs.
    requests: The requests of the run.
    central: The prediction by the central rule.
  """
  parts = predict.shares(made, requests, central)
  rows = [(name, f'{share:.0%}') for name, share in parts.items()]
  unmeasured = 1 - sum(parts[part] for part in rules.MEASURED)
  return (
    table([('share of the time (estimates), central rule', ''), *rows])
    + f'\n  No measurement on a TPU covers {unmeasured:.0%} of the time. The'
    ' rest follows single operations that were measured on a v5e.'
  )


def predictions(
  made: costs.Set,
  requests: lengths_lib.Lengths,
  by_rule: Mapping[str, predict.Prediction],
) -> str:
  """Returns the samples per second by each rule, followed by the headlines.

  Args:
    made: The programs.
    requests: The requests of the runs.
    by_rule: The predictions, by the name of the rule.
  """
  predicted = by_rule.values()
  benchmark = benchmarks.find(made)
  tokens = float(requests.outputs.mean())
  rows: list[Row] = [('samples/s (estimates)', *by_rule)]
  for name in next(iter(predicted)).rates:
    rates = [p.rates[name] for p in predicted]
    bounds = benchmark.bounds.get(name)
    title = f'{name}, {bounds}' if bounds else name
    rows.append((title, *(f'{rate:.1f}' for rate in rates)))
    if benchmark.counts_tokens:
      rows.append(('  tokens/s', *(f'{rate * tokens:.0f}' for rate in rates)))
  outcomes = [p.outcome for p in predicted if p.outcome is not None]
  if len(outcomes) == len(by_rule):
    rows += [
      ('time in prefills', *(f'{o.prefill_share:.0%}' for o in outcomes)),
      ('slots busy', *(f'{o.busy:.0%}' for o in outcomes)),
      ('tokens padded to', *(f'{o.padding:.2f} x' for o in outcomes)),
    ]
  central = by_rule[rules.CENTRAL.name]
  return table(rows) + '\n\n' + '\n'.join(headlines(made, central))


def headlines(made: costs.Set, central: predict.Prediction) -> list[str]:
  """Returns the central rule's figures, one line each."""
  return [
    f'{name}, {made.topology}, {made.weights}: {value:.1f} samples/s (estimate)'
    for name, value in central.rates.items()
  ]


def sax(
  results: Sequence[tuple[predict.Published, Mapping[str, predict.Prediction]]],
) -> str:
  """Returns the published results and the rules' predictions for them."""
  names = (f'{rule.name} (estimate)' for rule in rules.RULES)
  rows: list[Row] = [
    ('Sax, samples/s', 'measured', *names, 'central / measured')
  ]
  for published, by_rule in results:
    for scenario, measured in published.rates.items():
      values = {
        name: p.rates[scenario]
        for name, p in by_rule.items()
        if scenario in p.rates
      }
      if not values:
        continue
      ratio = values[rules.CENTRAL.name] / measured
      figures = (measured, *values.values(), ratio)
      name = f'{published.name} {scenario}'
      rows.append((name, *(f'{figure:.2f}' for figure in figures)))
  return table(rows)


def measured(made: costs.Set, step: predict.MeasuredStep) -> str:
  """Returns a measured step and the rules' predictions of it."""
  topology, slots = rules.topology_of(made), rules.live(made, step.requests)
  cost = dict(timed(made))[f'decode {made.slots}, a step']
  estimates = {
    rule.name: 1e3 * rules.seconds(cost, topology, rule, slots)
    for rule in rules.RULES
  }
  point = roofline.decode(made, step.tokens, step.tokens / 2)
  real = 1e3 * step.seconds
  rows: list[Row] = [
    ('ms', 'measured', 'floor', *(f'{name} (estimate)' for name in estimates)),
    (
      f'decode {made.slots}, a step',
      *(f'{ms:.2f}' for ms in (real, 1e3 * point.seconds, *estimates.values())),
    ),
    (
      'of the measured step',
      *('', f'{1e3 * point.seconds / real:.2f} x'),
      *(f'{ms / real:.2f} x' for ms in estimates.values()),
    ),
  ]
  return (
    table(rows)
    + f'\n  Another server, {step.slots} requests of {step.tokens} tokens with'
    f' answers of {step.tokens}: {step.requests.source}. Its time between'
    ' tokens contains prefills and its host.'
  )


def lengths(requests: lengths_lib.Lengths) -> str:
  """Returns the lengths of the requests, assumed or counted."""
  rows: list[Row] = [('tokens', 'mean', '10 %', 'median', '90 %', 'largest')]
  for name in ('prompts', 'outputs'):
    values = getattr(requests, name)
    marks = (*np.percentile(values, [10, 50, 90]), values.max())
    rows.append((name, *(f'{m:.0f}' for m in (values.mean(), *marks))))
  return f'  {len(requests)} requests; {requests.source}.\n' + table(rows)


def path(sets: Sequence[costs.Set], requests: lengths_lib.Lengths) -> str:
  """Compares configurations, in the order in which they were tried."""
  rows: list[Row] = [
    (
      *('configuration', 'step ms', 'prefill ms / 1,000', 'peak GiB'),
      'Offline samples/s (estimate)',
    )
  ]
  for made in sets:
    times = rules.times(made, rules.CENTRAL, requests)
    prefill = times.prefill(times.rows[-1], 1024) / times.rows[-1] / 1.024
    peak = max(p.memory.get('peak', 0) for p in made.programs.values()) / _GIB
    offline = predict.predict(made, requests, rules.CENTRAL, False).offline
    milliseconds = (f'{1e3 * seconds:.1f}' for seconds in (times.step, prefill))
    rows.append((made.title, *milliseconds, f'{peak:.2f}', f'{offline:.1f}'))
  return table(rows)
