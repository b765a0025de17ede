"""Compares this repository's engine with other engines, in one run.

  bench                                       random 4 x 512 model, fixed
  lengths
  bench --set=ragged --requests=64,256,1024   varied lengths; does cost stay
  flat
  bench --set=ragged --model=bundled          the trained model, the articles
  bench --engines=ours_int8,ct2_int8 --modes=beam --rounds=9
  bench --beams=4,8,30,100                    cost of wide beams, n best lists
  bench --beams=100,256 --new_tokens=8        the same with short answers
  bench --model=6b                            GPT-J's own sizes, random weights
  bench --avx2                                as on processors without AVX-512
  bench --family=llama --batch=1,8,32 --llama_cpp=DIR
                                              Llama 3.2 1B's sizes, greedily
  bench --family=llama --model=8b_4layers     4 layers of Llama 3 8B, its head

Every contender has its own process, pinned to --threads cores. The contenders
take turns, round by round, so other load on the machine affects all of them.
The speed is the number of tokens per CPU second of the process. Only requested
tokens count. Loading and compiling are measured separately.

A contender that cannot run on this machine is listed with the reason. Other
engines use the settings that were fastest in short trials on the same requests.
The tables list these settings. For CTranslate2, they are the library of matrix
products and the compute type. For OpenVINO in int8, they are the types of keys,
values and activations. For all other engines, the requests are also cut into
batches (batching.py), because these engines decode a batch until its longest
answer is done. Our engine takes the request with the longest prompt first.
"""

from collections.abc import Sequence
import json
import os
import signal
import subprocess
import sys

from absl import flags
from rich import console as console_lib

from benchmarks import agreement
from benchmarks import bench_flags
from benchmarks import contenders
from benchmarks import floor as floor_lib
from benchmarks import floors as floors_lib
from benchmarks import measure
from benchmarks import rows as rows_lib
from benchmarks import settings as settings_lib
from benchmarks import targets
from benchmarks import worker as worker_lib
from benchmarks.console import progress
from benchmarks.console import report
from benchmarks.console import widths as widths_lib
from benchmarks.tracing import trace as trace_lib
from saxml_ext.common import program
from saxml_ext.common import user_path
from saxml_ext.common.machine import accelerators

_JSON = flags.DEFINE_string('json', None, 'The JSON file for the figures.')
_TRACE = flags.DEFINE_bool(
  'trace', False, 'Also print the time of our engine by purpose.'
)
_AGREEMENT = flags.DEFINE_bool(
  'agreement', True, 'Also compare answers and the most likely int8 tokens.'
)
_PLOT = flags.DEFINE_string(
  'plot', None, 'The file for the plot. Default: bench.png in --out.'
)

_TITLES = {contenders.GPTJ: 'GPT-J', contenders.LLAMA: 'Llama'}


def measure_all(
  settings: settings_lib.Settings, console: console_lib.Console
) -> list[dict]:
  """Measures every mode, prints the results, and returns their rows."""
  rows, agreements = [], []
  _print_load(console, 'before')
  all_floors: dict[tuple[str, str, int], floor_lib.Floor] = {}
  all_rates: dict[tuple[str, str, int], floor_lib.Rates] = {}
  absent: dict[str, str] = {}
  for mode in settings.modes:
    own = settings.for_mode(mode)
    with (
      progress.Bar(console) as bar,
      measure.run(own, mode, bar) as result,
    ):
      bar(f'{mode}: rates of this machine', 1)
      floors, rates = floors_lib.measure_floors(own, result)
      if _AGREEMENT.value:
        bar(f'{mode}: agreement', 1)
        agreements.append(agreement.compare(result, own.requests()))
      rows += rows_lib.rows(result, floors, own.beams_of(mode))
      all_floors |= {(mode, *key): floor for key, floor in floors.items()}
      all_rates |= {(mode, *key): rate for key, rate in rates.items()}
      absent |= result.absent
  _print_load(console, 'after')
  console.print(report.speed(rows, _title(settings)))
  console.print(report.costs(rows))
  if all_floors:
    console.print(report.floors(all_floors, rows, all_rates))
  if len({row['beams'] for row in rows}) > 1:
    console.print(widths_lib.table(rows))
  for answers in agreements:
    report.print_agreement(console, answers)
  for reason in absent.values():
    console.print(f'absent: {reason}', markup=False, soft_wrap=True)
  return rows


def _print_load(console: console_lib.Console, when: str) -> None:
  load = ', '.join(f'{value:.2f}' for value in os.getloadavg())
  console.print(
    f'load averages {when} the run: {load} on {os.cpu_count()} cores'
  )


def trace(
  settings: settings_lib.Settings, console: console_lib.Console
) -> None:
  """Profiles our contenders and prints the time of each kind of operation."""
  for mode in settings.modes:
    own = settings.for_mode(mode)
    for contender in own.engines:
      if contender.engine == contenders.OURS:
        for table in trace_lib.capture(own, contender, mode):
          console.print(table)


def write(
  settings: settings_lib.Settings,
  rows: Sequence[dict],
  console: console_lib.Console,
) -> None:
  """Writes the rows and the plot to the paths that the flags set."""
  own = os.path.join(settings.out, 'bench.json')
  for path in filter(None, (own, user_path.resolve(_JSON.value))):
    with open(path, 'w', encoding='utf-8') as file:
      json.dump(rows, file, indent=1)
      file.write('\n')
  picture = user_path.resolve(_PLOT.value)
  picture = picture or os.path.join(settings.out, 'bench.png')
  argv, environment = worker_lib.command('benchmarks/plot')
  done = subprocess.run(
    [*argv, own, picture, _title(settings)],
    env=environment,
    capture_output=True,
    text=True,
    check=False,
  )
  if done.returncode:
    reason = (done.stderr.strip().splitlines() or ['unknown reason'])[-1]
    console.print(f'no plot: {reason}', markup=False)
  else:
    console.print(f'plot: {picture}', markup=False, soft_wrap=True)


def _title(settings: settings_lib.Settings) -> str:
  sizes = settings.sizes
  lengths = (
    f'prompts of {settings.prompt}, {settings.new_tokens} new tokens'
    if settings.request_set == 'fixed'
    else 'ragged prompts and answers'
  )
  return (
    f'{_TITLES[bench_flags.FAMILY.value]} {sizes.layers} layers x {sizes.dim}, vocabulary'
    f' {sizes.vocab}; {lengths}; {len(settings.cores)} thread(s);'
    f' {settings.rounds} rounds{"; only AVX2" if bench_flags.AVX2.value else ""}'
  )


def _report_accelerator(console: console_lib.Console) -> None:
  """Prints a note if the machine has an accelerator, which is not measured."""
  if chip := accelerators.detect():
    console.print(
      f'note: this machine has {chip.words}, but all engines are measured on'
      ' the CPU. To use the accelerator, run `./bazelw run'
      f' --config={chip.kind} //harness:offline`.',
      markup=False,
      soft_wrap=True,
    )


def main(argv: Sequence[str]) -> None:
  del argv
  # SIGTERM works like Ctrl-C: the workers are stopped before the exit.
  signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
  console = console_lib.Console(width=None if sys.stdout.isatty() else 140)
  if bench_flags.AVX2.value:
    xla = f'{os.environ.get("XLA_FLAGS", "")} {worker_lib.XLA_AVX2}'
    os.environ |= {**worker_lib.AVX2, 'XLA_FLAGS': xla.strip()}
  try:
    settings = bench_flags.settings_from_flags()
    _report_accelerator(console)
    os.makedirs(settings.out, exist_ok=True)
    rows = measure_all(settings, console)
    write(settings, rows, console)
    if _TRACE.value:
      trace(settings, console)
    missed = False
    for met, sentence in targets.check(bench_flags.FAMILY.value, rows):
      console.print(sentence, markup=False, soft_wrap=True)
      missed |= not met
    if missed:
      sys.exit(1)
  except (ValueError, OSError, worker_lib.WorkerError) as error:
    print(f'bench: {error}', file=sys.stderr)
    sys.exit(1)
  except KeyboardInterrupt:
    print('bench: interrupted. The workers are stopped.', file=sys.stderr)
    sys.exit(130)


if __name__ == '__main__':
  program.run(main)
