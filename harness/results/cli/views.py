"""What people see of stored results: cells of tables, and lines to copy."""

from collections.abc import Mapping
import json
import re
import shlex

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
_UNITS = {
  figures.SAMPLES_PER_SECOND: 'samples/s',
  figures.QUERIES_PER_SECOND: 'queries/s',
}
_NONE = '-'

# A program of the harness, wherever Bazel has built it, or its label.
_PROGRAM = re.compile(r'(?:^//|^|/)harness[/:](\w+?)(?:\.py)?$')


def row(entry: entry_lib.Entry) -> tuple[str, ...]:
  """An entry as a row under HEADING."""
  run = entry.performance
  return (
    entry.id,
    entry.began[:16].replace('T', ' '),
    entry.model,
    entry.scenario,
    entry.round,
    entry.system,
    figure(run) if run else _NONE,
    validity(run) if run else _NONE,
    _verdict(entry.accuracy) if entry.accuracy else _NONE,
  )


def _verdict(run: entry_lib.Accuracy) -> str:
  return accuracy(run) if run.passed else f'{accuracy(run)}, did not pass'


def figure(run: entry_lib.Performance) -> str:
  """The scenario's figure with its unit; latencies in ms."""
  if run.metric == figures.LATENCY_NS:
    return f'{run.value / 1e6:.3f} ms'
  return f'{run.value:.3f} {_UNITS.get(run.metric, run.metric)}'


def validity(run: entry_lib.Performance) -> str:
  """LoadGen's word for it."""
  return 'VALID' if run.valid else 'INVALID'


def accuracy(run: entry_lib.Accuracy) -> str:
  """The benchmark's figures in short."""
  if all(name in run.metrics for name in _ROUGE):
    values = ' / '.join(f'{run.metrics[name]:.2f}' for name in _ROUGE)
    return f'ROUGE {values}'
  if 'f1' in run.metrics:
    return f'F1 {run.metrics["f1"]:.2f}'
  return ', '.join(f'{k} {v:g}' for k, v in run.metrics.items()) or _NONE


def command(entry: entry_lib.Entry, *flags: str) -> str:
  """What to type to make the entry, with flags besides."""
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
  """A JSON list: validity, then the figure beside what was asked for.

  Args:
    run: the figures.
    log: of the same run.

  Raises:
    ValueError: the log lacks something.
  """
  words = [validity(run), *_figures(run, log)]
  return json.dumps(words, separators=(',', ':'))


def overview(stored: store.Stored) -> str:
  """Everything that matters of a result, on a screen."""
  entry = stored.entry
  run, scored = entry.performance, entry.accuracy
  lines = [
    ('id', entry.id),
    ('directory', stored.directory),
    ('model', f'{entry.model} ({entry.benchmark}), {entry.scenario}'),
    ('round', entry.round),
    ('system', entry.system),
    ('began', entry.began),
    ('ended', entry.ended),
    ('command', command(entry)),
  ]
  if run:
    lines.append(('result', f'{figure(run)}, {validity(run)}'))
    lines.append(('run', f'{run.samples} samples in {run.seconds:.1f} s'))
    if run.tokens_per_second is not None:
      lines.append(('tokens', f'{run.tokens_per_second:.1f} tokens/s'))
    lines.append(('latency', _percentiles(run.latency_ns)))
    if run.first_token_ns:
      lines.append(('first token', _percentiles(run.first_token_ns)))
  if scored:
    lines.append(('accuracy', scored.line))
  lines.append(('governor', entry.governor or 'unknown'))
  lines += [('energy', f'{v:.1f} J ({k})') for k, v in entry.energy.items()]
  lines += [('note', f'{k}: {v}') for k, v in entry.notes.items() if v]
  lines += [('version', f'{k} {v}') for k, v in entry.versions.items()]
  lines += [('hash', f'{k} {v}') for k, v in entry.hashes.items()]
  return '\n'.join(f'{name:<12} {text}' for name, text in lines)


def _percentiles(values: Mapping[str, float]) -> str:
  return ', '.join(f'p{float(k):g} {v / 1e6:.3f} ms' for k, v in values.items())


def _figures(run: entry_lib.Performance, log: loadgen_log.RunLog) -> list[str]:
  scenario = log.values.get('effective_scenario')
  target = f'target_qps={figures.number(log, "effective_target_qps"):g}'
  if scenario == rounds.OFFLINE:
    return [f'Samples_per_second={run.value:g}', target]
  if scenario == rounds.SERVER:
    bound = figures.number(log, 'effective_target_latency_ns')
    latency = run.latency_ns['99.00']
    return [
      f'Completed_samples_per_second={run.value:g}',
      target,
      f'99th_percentile_latency={latency / 1e6:.3f}ms',
      f'target_latency={bound / 1e6:g}ms',
      f'latency_to_target={latency / bound:.4f}',
    ]
  rank = '90th' if scenario == rounds.SINGLE_STREAM else '99th'
  words = [f'{rank}_percentile_latency={run.value / 1e6:.3f}ms']
  if run.early_stopping_ns is not None:
    estimate = run.early_stopping_ns / 1e6
    words.append(f'early_stopping_{rank}_percentile={estimate:.3f}ms')
  if scenario == rounds.SINGLE_STREAM:
    with_loadgen = figures.number(log, 'result_qps_with_loadgen_overhead')
    without = figures.number(log, 'result_qps_without_loadgen_overhead')
    overhead = 100 * (without / with_loadgen - 1)
    words.append(f'loadgen_overhead={overhead:.2f}%')
  return words
