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
  'Contenders, such as ours_int8 or ct2; a bare engine means all its types.'
  ' Default: all; with --model=6b ours_int8,ct2_int8; of several widths ours'
  ' and CTranslate2 in int8 and float32, and transformers in float32.',
)
_MODES = flags.DEFINE_list(
  'modes', None, 'beam, greedy. Default: both; of several widths beam alone.'
)
_SET = flags.DEFINE_enum(
  'set',
  'fixed',
  list(settings_lib.SETS),
  'fixed: --batch requests of --prompt tokens, answers of --new_tokens.'
  ' ragged: --requests with prompts about --prompt long and answers of 30 to'
  ' 128 tokens.',
)
_MODEL = flags.DEFINE_enum(
  'model',
  'random',
  list(presets.OF_MODEL),
  'Random weights, trained ones, or random ones of a model as large as GPT-J:'
  ' 12 GB in --cache, and 6 GB more for CTranslate2.',
)
_LAYERS = flags.DEFINE_integer('layers', None, 'Layers: 4; of 6b 28.', 1)
_DIM = flags.DEFINE_integer('dim', None, 'Width: 512; of 6b 4096.', 1)
_HEADS = flags.DEFINE_integer('heads', None, 'Heads: 4; of 6b 16.', 1)
_ROTARY = flags.DEFINE_integer('rotary', None, 'Rotated dims of a head: 64.', 2)
_VOCAB = flags.DEFINE_integer('vocab', None, 'Vocabulary: 50400.', 16)
_BATCH = flags.DEFINE_integer('batch', None, 'Requests of the fixed set: 8.', 1)
_REQUESTS = flags.DEFINE_list(
  'requests', ['256'], 'Requests of the ragged set; each number is measured.'
)
_PROMPT = flags.DEFINE_integer(
  'prompt',
  None,
  'Tokens of a prompt; of a ragged one, on average. 256; with 6b 64.',
  1,
)
_NEW_TOKENS = flags.DEFINE_integer(
  'new_tokens',
  None,
  'Tokens of each answer of the fixed set: 64; with 6b 16; of several widths'
  ' 32.',
  1,
)
_BEAMS = flags.DEFINE_list(
  'beams',
  ['4'],
  'Beams of mode beam. Several widths, such as 4,8,30,100, are measured one'
  ' after the other: of beams wider than 4 with fewer requests, and the n best'
  ' answers of each engine are compared.',
)
_SLOTS = flags.DEFINE_integer(
  'slots', 32, 'Requests that our engine decodes together, at most.', 1
)
_THREADS = flags.DEFINE_integer('threads', 1, 'Threads and cores of each.', 1)
_AVX2 = flags.DEFINE_bool(
  'avx2', False, 'Keep all engines to AVX2, where the processor has more.'
)
_ROUNDS = flags.DEFINE_integer(
  'rounds', None, 'Rounds: 5; with 6b or several widths 3.', 1
)
_OUT = flags.DEFINE_string(
  'out', 'results/bench', 'Directory for logs and the plot.'
)
_CACHE = flags.DEFINE_string(
  'cache',
  os.path.join(tempfile.gettempdir(), f'gptj_sax_bench_{os.getuid()}'),
  "Directory that keeps the random model and peers' forms of it.",
)
_JSON = flags.DEFINE_string('json', None, 'File for the figures, as rows.')
_TRACE = flags.DEFINE_bool(
  'trace', False, 'Also print where the time of our engine goes.'
)
_AGREEMENT = flags.DEFINE_bool(
  'agreement', True, 'Also compare answers, and the likeliest tokens of int8.'
)
_PLOT = flags.DEFINE_string('plot', None, 'Picture; default: bench.png in out.')

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
  """Returns the widths in --beams; raises ValueError if one is no number."""
  try:
    widths = tuple(sorted({int(text) for text in _BEAMS.value}))
  except ValueError:
    widths = ()
  if not widths:
    raise ValueError(
      f'--beams is {",".join(_BEAMS.value)!r}; use numbers such as 4,8,30,100.'
    )
  return widths


def _preset(widths: bool) -> presets.Preset:
  """Returns the preset of --model, changed by the other flags."""
  adjustable = (
    _ENGINES,
    _LAYERS,
    _DIM,
    _HEADS,
    _ROTARY,
    _VOCAB,
    _BATCH,
    _PROMPT,
    _NEW_TOKENS,
    _ROUNDS,
  )
  given = {f.name: f.value for f in adjustable if f.value is not None}
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
    reason = (done.stderr.strip().splitlines() or ['no reason given'])[-1]
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
    f' {settings.rounds} rounds{"; AVX2 alone" if _AVX2.value else ""}'
  )


def _tell_what_is_idle(console: console_lib.Console) -> None:
  """Prints a note if the machine has an accelerator, which is not measured."""
  if found := accelerators.detect():
    console.print(
      f'note: this machine has {found.words}, and all engines are measured on'
      ' the CPU. The accelerator is used by `./bazelw run'
      f' --config={found.kind} //harness:offline`',
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
    _tell_what_is_idle(console)
    os.makedirs(settings.out, exist_ok=True)
    write(settings, measure_all(settings, console), console)
    if _TRACE.value:
      trace(settings, console)
  except (ValueError, OSError, worker_lib.WorkerError) as error:
    print(f'bench: {error}', file=sys.stderr)
    sys.exit(1)
  except KeyboardInterrupt:
    print('bench: interrupted; its workers are stopped.', file=sys.stderr)
    sys.exit(130)


if __name__ == '__main__':
  program.run(main)
