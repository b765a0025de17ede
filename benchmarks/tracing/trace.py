"""Profiles our engine, and sums the time of a step by source line."""

import collections
from collections.abc import Sequence
import glob
import gzip
import json
import os
import shutil

from rich import table as table_lib

from benchmarks import contenders
from benchmarks import settings as settings_lib
from benchmarks import worker as worker_lib
from benchmarks.tracing import hlo_names

# Maps the weights of a matrix product to the name of the product.
_MATRICES = {
  '.qkv': 'product qkv',
  '.post': 'product post',
  '.up': 'product up',
  '.down': 'product down',
  '.head': 'product head',
}
# Maps files of the engine to their purpose, for operations that are no matrix
# products.
_FILES = {
  'attention.py': 'attention',
  'beam.py': 'search',
  'pax_beam.py': 'search',
  'sample.py': 'search',
  'search.py': 'search',
  'topk.py': 'top-k',
  'cache.py': 'KV and ancestry',
  'rotary.py': 'rotary positions',
}
# Maps functions in the engine's `components.py` to their purpose.
FUNCTIONS = {'normalize': 'layer norms', 'gelu': 'GELU'}
_MOST_OPERATIONS = 20


def capture(
  settings: settings_lib.Settings, contender: contenders.Contender, mode: str
) -> list[table_lib.Table]:
  """Profiles one run of one of our contenders, in its own worker.

  The profile stays in the run's directory, for Perfetto.

  Raises:
    worker.WorkerError: The worker failed.
  """
  name = f'{mode}-{contender.name}'
  directory = os.path.join(settings.out, 'trace', name)
  shutil.rmtree(directory, ignore_errors=True)
  dump = os.path.join(directory, 'programs')
  worker = worker_lib.Worker(
    contender,
    settings.cores,
    os.path.join(settings.out, 'logs', f'trace-{name}.log'),
    f'--xla_dump_to={dump} --xla_dump_hlo_as_text',
  )
  try:
    requests = settings.requests()
    worker.ask('load', job=settings.job(contender, mode, requests))
    worker.ask(
      'trace',
      directory=directory,
      count=min(len(requests), 2 * settings.slots),
    )
  finally:
    worker.stop()
  (path,) = glob.glob(f'{directory}/**/*.trace.json.gz', recursive=True)
  with gzip.open(path, 'rt', encoding='utf-8') as file:
    seconds = self_seconds(json.load(file)['traceEvents'])
  return tables(name, seconds, hlo_names.read(dump))


def self_seconds(events: Sequence[dict]) -> dict[tuple[str, str], list[float]]:
  """Returns the seconds and the calls of each (program, operation).

  The time of an operation that ran inside another one counts only for the inner
  one.

  Args:
    events: The events in Chrome's trace format, "ts" and "dur" in microseconds.
  """
  threads = collections.defaultdict(list)
  for event in events:
    if event.get('ph') == 'X' and 'hlo_op' in event.get('args', {}):
      threads[event['pid'], event['tid']].append(event)
  totals: dict[tuple[str, str], list[float]] = {}
  for thread in threads.values():
    # If two events begin at the same time, the longer one contains the other.
    thread.sort(key=lambda e: (e['ts'], -e['dur']))
    open_events: list[tuple[float, list[float]]] = []
    for event in thread:
      while open_events and open_events[-1][0] <= event['ts']:
        open_events.pop()
      seconds = event['dur'] * 1e-6
      if open_events:
        open_events[-1][1][0] -= seconds
      key = event['args']['hlo_module'], event['args']['hlo_op']
      entry = totals.setdefault(key, [0.0, 0])
      entry[0] += seconds
      entry[1] += 1
      open_events.append((event['ts'] + event['dur'], entry))
  return totals


def label(operation: hlo_names.Operation | None) -> str:
  """Returns the purpose of an operation, found from its source code."""
  if operation is None:
    return 'rest'
  for frame in reversed(operation.frames):
    if frame.function in FUNCTIONS:
      return FUNCTIONS[frame.function]
    if frame.file in _FILES:
      return _FILES[frame.file]
    for matrix, name in _MATRICES.items():
      if frame.file == 'model.py' and matrix in frame.code:
        rounding = any(f.file == 'quant.py' for f in operation.frames)
        return f'{name}: rounding activations' if rounding else name
  if not operation.frames:
    return 'rest'
  inner = operation.frames[-1]
  return f'{os.path.splitext(inner.file)[0]}.{inner.function}'


def tables(
  name: str,
  seconds: dict[tuple[str, str], list[float]],
  operations: dict[tuple[str, str], hlo_names.Operation],
) -> list[table_lib.Table]:
  """Returns tables of the time by purpose, program and slowest operations."""
  total = sum(s for s, _ in seconds.values())
  groups: dict[tuple[str, str], float] = collections.defaultdict(float)
  for key, (spent, _) in seconds.items():
    groups[key[0], label(operations.get(key))] += spent
  purposes = table_lib.Table(title=f'{name}: time by purpose')
  purposes.add_column('program')
  purposes.add_column('purpose')
  purposes.add_column('ms', justify='right')
  purposes.add_column('share', justify='right')
  largest = sorted(groups.items(), key=lambda item: -item[1])
  for (program, purpose), spent in largest:
    if spent >= 0.001 * total:
      purposes.add_row(program, purpose, *_amounts(spent, total))
  top = table_lib.Table(title=f'{name}: operations with the most time')
  for column in ('program', 'operation', 'result', 'purpose'):
    top.add_column(column)
  for column in ('calls', 'us each', 'ms', 'share'):
    top.add_column(column, justify='right')
  ranked = sorted(seconds.items(), key=lambda item: -item[1][0])
  for key, (spent, calls) in ranked[:_MOST_OPERATIONS]:
    operation = operations.get(key)
    top.add_row(
      *key,
      operation.shape if operation else '',
      label(operation),
      str(int(calls)),
      f'{1e6 * spent / calls:.1f}',
      *_amounts(spent, total),
    )
  return [purposes, top]


def _amounts(spent: float, total: float) -> tuple[str, str]:
  return f'{1000 * spent:.1f}', f'{100 * spent / total:.1f} %'
