"""Formats stored results as tables, and as lines that users can copy."""

from collections.abc import Iterator, Mapping, Sequence
import json
import re
import shlex

from harness.benchmarks import all as benchmarks
from harness.loadgen import loadgen_log
from harness.results import entry as entry_lib
from harness.results import figures
from harness.results import store
from harness.rules import rounds

HEADING = (
  'id',
  'began (UTC)',
  'model',
  'scenario',
  'round',
  'system',
  'result',
  'valid',
  'accuracy',
)
_ROUGE = ('rouge1', 'rouge2', 'rougeL')
_NONE = '-'

# Matches the path of a harness program anywhere in Bazel's output, or its
# label.
_PROGRAM = re.compile(r'(?:^//|^|/)harness[/:](\w+?)(?:\.py)?$')


def row(entry: entry_lib.Entry) -> tuple[str, ...]:
  """Returns the table row of an entry, with the columns of HEADING."""
  run, scored = entry.performance, entry.accuracy
  verdict = _NONE
  if scored:
    verdict = accuracy(scored) + ('' if scored.passed else ', did not pass')
  return (
    entry.id,
    entry.began[:16].replace('T', ' '),
    entry.model,
    entry.scenario,
    entry.round,
    entry.system,
    figure(entry),
    validity(run) if run else _NONE,
    verdict,
  )


def figure(entry: entry_lib.Entry) -> str:
  """Returns the scenario's figure with its unit. Latencies are in ms.

  Official results of Llama are in tokens/s, so those are added. Without a
  performance run, the text is "-".
  """
  run = entry.performance
  if run is None:
    return _NONE
  if run.metric == figures.LATENCY_NS:
    return f'{run.value / 1e6:.3f} ms'
  units = {rule.metric: rule.unit for rule in rounds.SCENARIOS.values()}
  text = f'{run.value:.3f} {units.get(run.metric, run.metric)}'
  if benchmarks.get(entry.benchmark).uses_tokens and run.tokens_per_second:
    text += f', {run.tokens_per_second:.1f} tokens/s'
  return text


def validity(run: entry_lib.Performance) -> str:
  """Returns VALID or INVALID, as LoadGen judged the run."""
  return 'VALID' if run.valid else 'INVALID'


def accuracy(run: entry_lib.Accuracy) -> str:
  """Returns the accuracy figures of the benchmark in short form."""
  if all(name in run.metrics for name in _ROUGE):
    values = ' / '.join(f'{run.metrics[name]:.2f}' for name in _ROUGE)
    return f'ROUGE {values}'
  if 'f1' in run.metrics:
    return f'F1 {run.metrics["f1"]:.2f}'
  return ', '.join(f'{k} {v:g}' for k, v in run.metrics.items()) or _NONE


def command(entry: entry_lib.Entry, *flags: str) -> str:
  """Returns the shell command that reproduces an entry, with extra flags."""
  words = list(entry.command)
  program = _PROGRAM.search(words[0]) if words else None
  if program:
    words = ['./bazelw', 'run', f'//harness:{program[1]}', '--', *words[1:]]
  if 'run' in words and '--' not in words:
    words.append('--')
  words += [flag for flag in flags if flag not in words]
  return shlex.join(words[:-1] if words[-1:] == ['--'] else words)


def performance_line(
  run: entry_lib.Performance, log: loadgen_log.RunLog
) -> str:
  """Returns a JSON list of the run's validity, its figure and its target.

  Args:
    run: The figures.
    log: The log of the same run.

  Raises:
    ValueError: The log lacks a required value.
  """
  words = [validity(run), *_figures(run, log)]
  return json.dumps(words, separators=(',', ':'))


def overview(stored: store.Stored) -> str:
  """Returns a one-screen summary of a result."""
  return '\n'.join(f'{name:<12} {text}' for name, text in _overview(stored))


def _overview(stored: store.Stored) -> Iterator[tuple[str, str]]:
  entry = stored.entry
  run, scored = entry.performance, entry.accuracy
  yield 'id', entry.id
  yield 'directory', stored.directory
  yield 'model', f'{entry.model} ({entry.benchmark}), {entry.scenario}'
  for name in ('round', 'system', 'began', 'ended'):
    yield name, getattr(entry, name)
  yield 'command', command(entry)
  if run:
    yield 'result', f'{figure(entry)}, {validity(run)}'
    yield 'run', f'{run.samples} samples in {run.seconds:.1f} s'
    if run.tokens_per_second is not None:
      yield 'tokens', f'{run.tokens_per_second:.1f} tokens/s'
    yield 'latency', _percentiles(run.latency_ns)
    if run.first_token_ns:
      mean = _mean(run.mean_first_token_ns)
      yield 'first token', _percentiles(run.first_token_ns) + mean
    if run.per_token_ns:
      mean = _mean(run.mean_per_token_ns)
      yield 'per token', _percentiles(run.per_token_ns) + mean
  if scored:
    yield 'accuracy', scored.line
  yield 'governor', entry.governor or 'unknown'
  yield from (('energy', f'{v:.1f} J ({k})') for k, v in entry.energy.items())
  yield from (('note', f'{k}: {v}') for k, v in entry.notes.items() if v)
  yield from (('version', f'{k} {v}') for k, v in entry.versions.items())
  yield from (('hash', f'{k} {v}') for k, v in entry.hashes.items())


def _percentiles(values: Mapping[str, float]) -> str:
  return ', '.join(f'p{float(k):g} {v / 1e6:.3f} ms' for k, v in values.items())


def _mean(value: float | None) -> str:
  return '' if value is None else f', mean {value / 1e6:.3f} ms'


def _figures(
  run: entry_lib.Performance, log: loadgen_log.RunLog
) -> Iterator[str]:
  target = figures.number(log, 'effective_target_qps')
  scenario = rounds.SCENARIOS[str(log.values.get('effective_scenario'))]
  rank = scenario.rank
  if scenario.streams:
    yield f'{rank}_percentile_latency={run.value / 1e6:.3f}ms'
    if run.early_stopping_ns is not None:
      estimate = run.early_stopping_ns / 1e6
      yield f'early_stopping_{rank}_percentile={estimate:.3f}ms'
    if scenario.samples_per_query == 1:
      with_loadgen = figures.number(log, 'result_qps_with_loadgen_overhead')
      without = figures.number(log, 'result_qps_without_loadgen_overhead')
      yield f'loadgen_overhead={100 * (without / with_loadgen - 1):.2f}%'
    return
  name = 'Samples' if scenario.at_once else 'Completed_samples'
  yield f'{name}_per_second={run.value:g}'
  yield f'target_qps={target:g}'
  if scenario.bounded and run.per_token_ns:
    for name, latencies in (
      ('ttft', run.first_token_ns),
      ('tpot', run.per_token_ns),
    ):
      bound = figures.number(log, f'requested_server_{name}_latency') / 1e6
      latency = latencies[scenario.percentile] / 1e6
      yield f'{rank}_percentile_{name}={latency:.3f}ms'
      yield f'target_{name}={bound:g}ms'
  elif scenario.bounded:
    bound = figures.number(log, 'effective_target_latency_ns')
    latency = run.latency_ns[scenario.percentile]
    yield f'{rank}_percentile_latency={latency / 1e6:.3f}ms'
    yield f'target_latency={bound / 1e6:g}ms'
    yield f'latency_to_target={latency / bound:.4f}'


# The figures of a comparison. Each row has the label, the field of the entry,
# the key in that field, and the format of a cell. Latencies are in ns.
_MEASURES = (
  ('tokens/s', 'tokens_per_second', '', '{:.1f}'),
  ('p50 latency', 'latency_ns', '50.00', '{:.3f} ms'),
  ('p90 latency', 'latency_ns', '90.00', '{:.3f} ms'),
  ('p99 latency', 'latency_ns', '99.00', '{:.3f} ms'),
  ('p50 first token', 'first_token_ns', '50.00', '{:.3f} ms'),
  ('p99 first token', 'first_token_ns', '99.00', '{:.3f} ms'),
  ('mean first token', 'mean_first_token_ns', '', '{:.3f} ms'),
  ('p99 per token', 'per_token_ns', '99.00', '{:.3f} ms'),
  ('mean per token', 'mean_per_token_ns', '', '{:.3f} ms'),
  ('ROUGE-1', 'metrics', 'rouge1', '{:.4f}'),
  ('ROUGE-2', 'metrics', 'rouge2', '{:.4f}'),
  ('ROUGE-L', 'metrics', 'rougeL', '{:.4f}'),
  ('F1', 'metrics', 'f1', '{:.4f}'),
  ('exact match', 'metrics', 'exact_match', '{:.4f}'),
)


def side_by_side(entries: Sequence[entry_lib.Entry]) -> list[tuple[str, ...]]:
  """Returns the rows of a comparison table, with one column per entry.

  Each figure after the first column also has its ratio to the first entry's
  figure. The ratio is left out if the two entries have different metrics.

  Args:
    entries: The entries to compare; at least one.
  """
  table = [('', *(entry.id for entry in entries))]
  for name in ('model', 'scenario', 'round', 'system'):
    table.append((name, *(getattr(entry, name) for entry in entries)))
  runs = [entry.performance for entry in entries]
  table.append(('valid', *(validity(run) if run else _NONE for run in runs)))
  metric = runs[0].metric if runs[0] else None
  cells = [figure(entry) for entry in entries]
  values = [run.value if run and run.metric == metric else None for run in runs]
  table.append(('result', *_with_ratios(cells, values)))
  for label, field, key, form in _MEASURES:
    values = [_measure(entry, field, key) for entry in entries]
    if any(value is not None for value in values):
      cells = [_NONE if v is None else form.format(v) for v in values]
      table.append((label, *_with_ratios(cells, values)))
  return table


def _measure(entry: entry_lib.Entry, field: str, key: str) -> float | None:
  holder = entry.accuracy if field == 'metrics' else entry.performance
  measured = getattr(holder, field, None)
  value = measured.get(key) if key and measured is not None else measured
  return value / 1e6 if field.endswith('_ns') and value is not None else value


def _with_ratios(cells: list[str], values: Sequence[float | None]) -> list[str]:
  base = values[0]
  return cells[:1] + [
    f'{cell} ({value / base:.3f}x)' if value is not None and base else cell
    for cell, value in zip(cells[1:], values[1:])
  ]
