"""Measures the overhead of the cell compared with its engine.

  bazel run //tests/cell:bench -- --json=/tmp/cell.json

Part "overhead" sends requests through the real client to a cell whose engine
answers at once. Some requests are sent one at a time, and others together. A
bare gRPC server with messages of the same size gets the same requests in turn.
Its figures are the lower bound.

Part "offline" runs the harness's Offline scenario against a cell with the
bundled model. It takes turns with the same engine without a cell, over the same
articles.

If other work shares the machine, CPU time varies less than latency.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import json
import os
import signal
import sys
import tempfile
from typing import Any

from absl import app
from absl import flags
from absl import logging
from rich import console as rich_console
from rich import table as rich_table

from harness import errors as harness_errors
from harness.benchmarks import gptj
from saxml_ext.common import errors
from saxml_ext.common import program
from saxml_ext.common import user_path
from saxml_ext.evaluation import dataset
from saxml_ext.evaluation import tokenizer as tokenizer_lib
from serve import progress as progress_lib
from tests.cell import overhead
from tests.cell import throughput

_OVERHEAD = 'overhead'
_OFFLINE = 'offline'

_P50_MS = 1.0
_REQUESTS_PER_SECOND = 2000.0
_LEAST_OF_ENGINE = 0.9

_PARTS = flags.DEFINE_list('parts', [_OVERHEAD, _OFFLINE], 'What to measure.')
_JSON = flags.DEFINE_string('json', None, 'The JSON file for the figures.')
_ROUNDS = flags.DEFINE_integer('rounds', 7, 'Rounds of overhead.', 1)
_SEQUENTIAL = flags.DEFINE_integer(
  'sequential', 500, 'The number of sequential requests of a round.', 1
)
_BURST = flags.DEFINE_integer(
  'burst', 3000, 'The number of concurrent requests of a round.', 1
)
_CONCURRENCY = flags.DEFINE_integer(
  'concurrency', 64, 'The maximum number of pending requests.', 1
)
_MANY = flags.DEFINE_integer(
  'many', 1024, 'The same for a second overhead measurement.', 1, 1024
)
_OFFLINE_ROUNDS = flags.DEFINE_integer(
  'offline_rounds', 3, 'The number of passes over the articles.', 1
)
_SAMPLES = flags.DEFINE_integer(
  'samples', 0, 'The number of articles of a pass; 0 means all 512.', 0
)
_PARAMS = flags.DEFINE_string(
  'params', gptj.BUNDLE.params, 'The serving params of the Offline runs.'
)
_JAX_CACHE_DIR = flags.DEFINE_string(
  'jax_cache_dir',
  None,
  'The cache of compiled programs. Default: a temporary directory.',
)
_MAX_SECS = flags.DEFINE_integer(
  'max_secs', 1800, 'The timeout of the benchmark in seconds.', 1
)


def main(argv: Sequence[str]) -> int:
  del argv
  unknown = set(_PARTS.value) - {_OVERHEAD, _OFFLINE}
  if unknown:
    raise app.UsageError(f'--parts has {_OVERHEAD} and {_OFFLINE}')
  for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGALRM):
    signal.signal(number, _end)
  signal.alarm(_MAX_SECS.value)
  if not flags.FLAGS['verbosity'].present:
    logging.set_verbosity(logging.WARNING)
  try:
    with tempfile.TemporaryDirectory(prefix='sax_bench_') as directory:
      _run(directory)
  except (
    errors.SaxError,
    harness_errors.HarnessError,
    OSError,
    ValueError,
  ) as error:
    print(f'bench: {error}', file=sys.stderr, flush=True)
    return 1
  return 0


def _end(number: int, unused_frame) -> None:
  # This ends the function calls, and stops all processes that were started.
  if number == signal.SIGALRM:
    print(f'bench: not done after {_MAX_SECS.value} s', file=sys.stderr)
  raise SystemExit(128 + number)


def _run(directory: str) -> None:
  progress = progress_lib.Progress()
  articles = dataset.load_articles(gptj.BUNDLE.dataset, _SAMPLES.value)
  tokenizer = tokenizer_lib.load(gptj.BUNDLE.tokenizer)
  prompts = dataset.encode_prompts(
    articles, tokenizer, gptj.BUNDLE.max_input_length
  )
  # Other load on the machine takes cores and caches from the measured
  # processes.
  busy, cores = os.getloadavg()[0], os.cpu_count()
  progress.text(f'load average {busy:.1f} on {cores} cores before the start')
  results: dict[str, object] = {'load_average': busy, 'cores': cores}
  if _OVERHEAD in _PARTS.value:
    load = overhead.Load(
      rounds=_ROUNDS.value,
      sequential=_SEQUENTIAL.value,
      burst=_BURST.value,
      concurrencies=(_CONCURRENCY.value, _MANY.value),
    )
    figures = overhead.measure(
      [p.tolist() for p in prompts], load, directory, progress
    )
    results[_OVERHEAD] = _overhead_report(load, figures)
  if _OFFLINE in _PARTS.value:
    offline = throughput.Load(
      params=_PARAMS.value,
      rounds=_OFFLINE_ROUNDS.value,
      samples=len(prompts),
      concurrency=_CONCURRENCY.value,
      jax_cache_dir=user_path.resolve(_JAX_CACHE_DIR.value)
      or os.path.join(directory, 'jax'),
    )
    rates = throughput.measure(prompts, offline, directory, progress)
    results[_OFFLINE] = _offline_report(offline, rates)
  if _JSON.value:
    path = user_path.resolve(_JSON.value)
    with open(path, 'w', encoding='utf-8') as file:
      json.dump(results, file, indent=2)
    progress.text(f'figures: {path}')


def _overhead_report(
  load: overhead.Load, figures: Mapping[str, overhead.Figures]
) -> dict[str, object]:
  cell, echo = figures[overhead.CELL], figures[overhead.ECHO]
  rows = [
    _row('alone: p50 ms', cell.p50_ms, echo.p50_ms),
    _row('alone: p90 ms', cell.p90_ms, echo.p90_ms),
    _row('alone: p99 ms', cell.p99_ms, echo.p99_ms),
  ]
  for count in load.concurrencies:
    ours, floor = cell.bursts[count], echo.bursts[count]
    rows += [
      _row(
        f'{count} at once: requests/s',
        ours.requests_per_second,
        floor.requests_per_second,
      ),
      _row('  server CPU us/request', ours.server_us, floor.server_us),
      _row('  client CPU us/request', ours.client_us, floor.client_us),
    ]
  _print(
    f'A request without its engine ({load.rounds} rounds, medians)',
    ('', overhead.CELL, overhead.ECHO, 'ratio'),
    rows,
  )
  fast = cell.p50_ms <= _P50_MS
  rate = cell.bursts[load.concurrencies[0]].requests_per_second
  many = rate >= _REQUESTS_PER_SECOND
  _verdict(f'p50 {cell.p50_ms:.2f} ms, at most {_P50_MS:g}', fast)
  _verdict(
    f'{rate:.0f} requests/s, at least {_REQUESTS_PER_SECOND:g}',
    many,
  )
  return _as_json(load, figures) | {
    'p50_met': fast,
    'requests_per_second_met': many,
  }


def _offline_report(
  load: throughput.Load, figures: Mapping[str, throughput.Figures]
) -> dict[str, object]:
  cell, engine = figures[throughput.CELL], figures[throughput.ENGINE]
  _print(
    f'Offline over {load.samples} articles, {load.params}'
    f' ({load.rounds} rounds, medians)',
    ('', throughput.CELL, throughput.ENGINE, 'ratio'),
    [
      _row(
        'samples per second',
        cell.samples_per_second,
        engine.samples_per_second,
      ),
      _row(
        'samples per CPU second',
        cell.samples_per_cpu_second,
        engine.samples_per_cpu_second,
      ),
    ],
  )
  print(f"LoadGen's process: {cell.harness_cpu_ms:.1f} CPU ms per sample")
  ratio = cell.samples_per_cpu_second / engine.samples_per_cpu_second
  met = ratio >= _LEAST_OF_ENGINE
  _verdict(
    f'{100 * ratio:.1f} % of the engine per CPU second, at least'
    f' {100 * _LEAST_OF_ENGINE:g} %',
    met,
  )
  return _as_json(load, figures) | {'ratio': ratio, 'ratio_met': met}


def _row(name: str, ours: float, other: float) -> tuple[str, ...]:
  return (name, f'{ours:.4g}', f'{other:.4g}', f'{ours / other:.2f}')


def _print(
  title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]
) -> None:
  console = rich_console.Console(width=80, highlight=False)
  console.print(title)
  table = rich_table.Table()
  for i, column in enumerate(columns):
    table.add_column(column, justify='right' if i else 'left')
  for row in rows:
    table.add_row(*row)
  console.print(table)


def _verdict(text: str, met: bool) -> None:
  print(f'{text}: {"met" if met else "MISSED"}', flush=True)


def _as_json(load: Any, figures: Mapping[str, Any]) -> dict[str, Any]:
  rows = {name: dataclasses.asdict(value) for name, value in figures.items()}
  return {'load': dataclasses.asdict(load)} | rows


if __name__ == '__main__':
  program.run(main)
