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
import dataclasses
import json
import os
import signal
import subprocess
import sys
import tempfile

from absl import flags
from rich import console as console_lib

from benchmarks import agreement
from benchmarks import contenders
from benchmarks import floor as floor_lib
from benchmarks import floors as floors_lib
from benchmarks import measure
from benchmarks import presets
from benchmarks import random_model
from benchmarks import rows as rows_lib
from benchmarks import settings as settings_lib
from benchmarks import worker as worker_lib
from benchmarks.console import progress
from benchmarks.console import report
from benchmarks.console import widths as widths_lib
from benchmarks.tracing import trace as trace_lib
from saxml_ext.common import flag_rules
from saxml_ext.common import program
from saxml_ext.common import user_path
from saxml_ext.common.machine import accelerators

_ENGINES = flags.DEFINE_list(
  'engines',
  None,
  'The contenders, such as ours_int8, or ct2 for all its types. Default: all.'
  ' With --model=6b: ours_int8,ct2_int8. With several widths: ours and'
  ' CTranslate2 in int8 and float32, and transformers in float32.',
)
_MODES = flags.DEFINE_list(
  'modes', None, 'beam, greedy. Default: both; with several widths, only beam.'
)
_SET = flags.DEFINE_enum(
  'set',
  'fixed',
  list(settings_lib.SETS),
  'The request set. fixed: --batch prompts of --prompt tokens with answers of'
  ' --new_tokens. ragged: --requests prompts of about --prompt tokens with'
  ' answers of 30 to 128 tokens.',
)
_MODEL = flags.DEFINE_enum(
  'model',
  'random',
  list(presets.OF_MODEL),
  'random: a small model with random weights. bundled: the trained model. 6b:'
  ' random weights in the size of GPT-J 6B, which need 12 GB in --cache, and 6'
  ' GB more for CTranslate2.',
)
flags.DEFINE_integer('layers', None, 'Layers. Default: 4; with 6b, 28.', 1)
flags.DEFINE_integer(
  'dim', None, 'Model dimension. Default: 512; with 6b, 4096.', 1
)
flags.DEFINE_integer('heads', None, 'Heads. Default: 4; with 6b, 16.', 1)
flags.DEFINE_integer('rotary', None, 'Rotated dims of a head. Default: 64.', 2)
flags.DEFINE_integer('vocab', None, 'Vocabulary size. Default: 50400.', 16)
flags.DEFINE_integer('batch', None, 'Requests of the fixed set. Default: 8.', 1)
_REQUESTS = flags.DEFINE_list(
  'requests', ['256'], 'The numbers of requests of the ragged set to measure.'
)
flags.DEFINE_integer(
  'prompt',
  None,
  'The length of prompts in tokens; the mean length in the ragged set. Default:'
  ' 256; with 6b, 64.',
  1,
)
flags.DEFINE_integer(
  'new_tokens',
  None,
  'The length of answers of the fixed set in tokens. Default: 64; with 6b, 16;'
  ' with several widths, 32.',
  1,
)
_BEAMS = flags.DEFINE_list(
  'beams',
  ['4'],
  'The number of beams of mode beam. Several widths, such as 4,8,30,100, are'
  ' measured one after the other. Widths above 4 have fewer requests. The n'
  ' best answers of the engines are compared.',
)
_SLOTS = flags.DEFINE_integer(
  'slots', 32, 'The maximum number of requests our engine decodes together.', 1
)
_THREADS = flags.DEFINE_integer(
  'threads', 1, 'The number of threads and of cores of each engine.', 1
)
_AVX2 = flags.DEFINE_bool(
  'avx2', False, 'Limit all engines to AVX2, even if the processor has more.'
)
flags.DEFINE_integer(
  'rounds',
  None,
  'The number of rounds. Default: 5; with 6b or several widths, 3.',
  1,
)
_OUT = flags.DEFINE_string(
  'out', 'results/bench', 'The directory for logs and the plot.'
)
_CACHE = flags.DEFINE_string(
  'cache',
  os.path.join(tempfile.gettempdir(), f'gptj_sax_bench_{os.getuid()}'),
  'The directory that caches the random model and its converted forms.',
)
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

flag_rules.act_only(
  'with --model=random or --model=6b',
  lambda: _MODEL.value != 'bundled',
  'layers dim heads rotary vocab',
)
flag_rules.act_only(
  'with --set=ragged', lambda: _SET.value == 'ragged', 'requests'
)
flag_rules.act_only(
  'with --set=fixed', lambda: _SET.value == 'fixed', 'batch new_tokens'
)
flag_rules.act_only(
  'with --set=fixed or random weights',
  lambda: _SET.value == 'fixed' or _MODEL.value != 'bundled',
  'prompt',
)
flag_rules.act_only(
  'with beam in --modes',
  lambda: settings_lib.BEAM in (_MODES.value or settings_lib.MODES),
  'beams',
)
flag_rules.act_only(
  'with an engine of ours in --engines',
  lambda: any(
    name.startswith(contenders.OURS)
    for name in _ENGINES.value or [contenders.OURS]
  ),
  'slots trace',
)

_ROOT = worker_lib.ROOT
_BUNDLED = os.path.join(_ROOT, 'harness', 'bundled')


def settings_from_flags() -> settings_lib.Settings:
  """Returns the settings from the flags; writes the random model if needed.

  Raises:
    ValueError: The flags contradict each other.
  """
  widths = _widths()
  names = _MODES.value or settings_lib.MODES[: None if len(widths) == 1 else 1]
  modes = settings_lib.modes(names, widths)
  preset = _preset(len(widths) > 1)
  counts: tuple[int, ...] = (preset.batch,)
  if _SET.value == 'ragged':
    counts = tuple(sorted({int(n) for n in _REQUESTS.value}))
  cache = user_path.resolve(_CACHE.value)
  articles = tokenizer = None
  if _MODEL.value == 'bundled':
    model = os.path.join(_BUNDLED, 'model')
    articles = os.path.join(_BUNDLED, 'eval.json')
    tokenizer = os.path.join(model, 'tokenizer.json')
  else:
    model = random_model.write(
      cache,
      preset.layers,
      preset.dim,
      preset.heads,
      preset.rotary,
      preset.vocab,
      preset.weights,
    )
  return settings_lib.Settings(
    model=model,
    cache=cache,
    out=user_path.resolve(_OUT.value),
    articles=articles,
    tokenizer=tokenizer,
    request_set=_SET.value,
    modes=modes,
    engines=contenders.choose(preset.engines),
    counts=counts,
    prompt=preset.prompt,
    new_tokens=preset.new_tokens,
    beams=widths[0],
    slots=_SLOTS.value,
    cores=worker_lib.idlest_cores(_THREADS.value),
    rounds=preset.rounds,
    trial_new_tokens=preset.trial_new_tokens,
  )


def _widths() -> tuple[int, ...]:
  """Returns the widths in --beams; raises ValueError if one is not a number."""
  try:
    widths = tuple(sorted({int(text) for text in _BEAMS.value}))
  except ValueError:
    widths = ()
  if not widths:
    raise ValueError(
      f'--beams is {",".join(_BEAMS.value)!r}. Use numbers such as 4,8,30,100.'
    )
  return widths


def _preset(widths: bool) -> presets.Preset:
  """Returns the preset of --model, changed by the other flags."""
  names = 'engines layers dim heads rotary vocab batch prompt new_tokens rounds'
  values = {name: flags.FLAGS[name].value for name in names.split()}
  given = {name: value for name, value in values.items() if value is not None}
  preset = presets.OF_MODEL[_MODEL.value]
  return dataclasses.replace(
    presets.of_widths(preset) if widths else preset, **given
  )


def measure_all(
  settings: settings_lib.Settings, console: console_lib.Console
) -> list[dict]:
  """Measures every mode, prints the results, and returns their rows."""
  found, agreements = [], []
  all_floors: dict[tuple[str, str, int], floor_lib.Floor] = {}
  all_rates: dict[tuple[str, str], floor_lib.Rates] = {}
  absent: dict[str, str] = {}
  for mode in settings.modes:
    own = settings.of_mode(mode)
    with (
      progress.Bar(console) as bar,
      measure.run(own, mode, bar) as result,
    ):
      bar(f'{mode}: rates of this machine', 1)
      floors, rates = floors_lib.measure_floors(own, result)
      if _AGREEMENT.value:
        bar(f'{mode}: agreement', 1)
        agreements.append(agreement.of(result, own.requests()))
      found += rows_lib.rows(result, floors, own.beams_of(mode))
      all_floors |= {(mode, *key): floor for key, floor in floors.items()}
      all_rates |= {(mode, name): rate for name, rate in rates.items()}
      absent |= result.absent
  console.print(report.speed(found, _title(settings)))
  console.print(report.costs(found))
  if all_floors:
    console.print(report.floors(all_floors, found, all_rates))
  if len({row['beams'] for row in found}) > 1:
    console.print(widths_lib.table(found))
  for answers in agreements:
    report.print_agreement(console, answers)
  for reason in absent.values():
    console.print(f'absent: {reason}', markup=False, soft_wrap=True)
  return found


def trace(
  settings: settings_lib.Settings, console: console_lib.Console
) -> None:
  """Profiles our contenders and prints the time of each kind of operation."""
  for mode in settings.modes:
    own = settings.of_mode(mode)
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
  config = settings.config
  lengths = (
    f'prompts of {settings.prompt}, {settings.new_tokens} new tokens'
    if settings.request_set == 'fixed'
    else 'ragged prompts and answers'
  )
  return (
    f'GPT-J {config["n_layer"]} layers x {config["n_embd"]}, vocabulary'
    f' {config["vocab_size"]}; {lengths}; {len(settings.cores)} thread(s);'
    f' {settings.rounds} rounds{"; only AVX2" if _AVX2.value else ""}'
  )


def _report_accelerator(console: console_lib.Console) -> None:
  """Prints a note if the machine has an accelerator, which is not measured."""
  if found := accelerators.detect():
    console.print(
      f'note: this machine has {found.words}, but all engines are measured on'
      ' the CPU. To use the accelerator, run `./bazelw run'
      f' --config={found.kind} //harness:offline`.',
      markup=False,
      soft_wrap=True,
    )


def main(argv: Sequence[str]) -> None:
  del argv
  # SIGTERM works like Ctrl-C: the workers are stopped before the exit.
  signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
  console = console_lib.Console(width=None if sys.stdout.isatty() else 140)
  if _AVX2.value:
    xla = f'{os.environ.get("XLA_FLAGS", "")} {worker_lib.XLA_AVX2}'
    os.environ |= {**worker_lib.AVX2, 'XLA_FLAGS': xla.strip()}
  try:
    settings = settings_from_flags()
    _report_accelerator(console)
    os.makedirs(settings.out, exist_ok=True)
    write(settings, measure_all(settings, console), console)
    if _TRACE.value:
      trace(settings, console)
  except (ValueError, OSError, worker_lib.WorkerError) as error:
    print(f'bench: {error}', file=sys.stderr)
    sys.exit(1)
  except KeyboardInterrupt:
    print('bench: interrupted. The workers are stopped.', file=sys.stderr)
    sys.exit(130)


if __name__ == '__main__':
  program.run(main)
