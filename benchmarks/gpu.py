"""Measures the engine on one GPU: its answers first, then its speed.

  bazel run --config=cuda //benchmarks:gpu
  python -m benchmarks.gpu --out=gpu.json

Outside of Bazel, it needs Python 3.11 or newer, JAX 0.10 or newer with a plugin
for the GPU, and absl-py. It runs these cases in order:

  answers-MODEL-FORMAT  bundled models beside the recorded answers
  rates                 what the device reads and computes at most
  peer                  transformers with a CUDA graph, if it is installed
  speed-MODEL-FORMAT    Llama 8B and GPT-J 6B with random weights

After each result, the JSON file is replaced, so that an interrupted run keeps
what it measured. After --deadline seconds, the program stops, also within a
case. Exits with 1 if a float32 answer differs, a case fails or is not finished,
or a target of --require is not met.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
import gc
import importlib.metadata
import importlib.util
import json
import os
import subprocess
import sys
import threading
import time
import traceback
from typing import Any

# JAX reads these when it is imported or first uses a device. The peer, another
# process, needs the memory that JAX would reserve.
os.environ.setdefault('XLA_PYTHON_CLIENT_PREALLOCATE', 'false')
if 'XLA_PYTHON_CLIENT_MEM_FRACTION' not in os.environ:
  os.environ.setdefault('XLA_CLIENT_MEM_FRACTION', '0.92')

# isort: split

import jax

from benchmarks.gpu_cases import bundled
from benchmarks.gpu_cases import rates as rates_lib
from benchmarks.gpu_cases import speed
from benchmarks.gpu_cases import table

_ANSWERS = tuple(
  f'answers-{model}-{dtype}'
  for dtype in ('float32', 'bfloat16', 'int8')
  for model in bundled.MODELS
)
_SPEED = tuple(
  f'speed-{model}-{number_format}'
  for number_format in speed.QUANTIZATION
  for model in ('llama', 'gptj')
)
CASES = (*_ANSWERS, 'rates', 'peer', *_SPEED)
_EXACT = 'float32'
_PEER_BATCHES = 1, 8, 32
_SLOTS = 64

Row = tuple[str, dict[str, Any]]


class _Run:
  """The cases of one run, and their results so far."""

  def __init__(self, options: argparse.Namespace):
    self._options = options
    self._end = time.monotonic() + options.deadline
    self._waiting = [c for c in CASES if c.startswith(options.cases)]
    self._lock = threading.Lock()
    self._child: subprocess.Popen | None = None
    device = jax.devices()[0]
    self.results: dict[str, dict[str, Any]] = {}
    self.header = {
      'device': device.device_kind,
      'platform': device.platform,
      'jax': jax.__version__,
      'python': sys.version.split()[0],
      'started': time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime()),
      'tiny': options.tiny,
    }

  def run(self) -> None:
    """Runs the chosen cases, and writes and prints each result."""
    for case in tuple(self._waiting):
      if time.monotonic() >= self._end:
        return
      gc.collect()  # The weights of the last case.
      try:
        for name, result in self._rows(case):
          self._add(name, result)
      except Exception as e:  # The other cases still give results.
        traceback.print_exc()
        self._add(case, {'error': f'{type(e).__name__}: {str(e)[:500]}'})
      self._waiting.remove(case)

  def finish(self) -> int:
    """Prints the table, also while a case runs; returns the exit code."""
    if self._child is not None:
      self._child.kill()
    for case in tuple(self._waiting):
      seconds = self._options.deadline
      self._add(case, {'error': f'not finished within {seconds:g} s'})
    print()
    print(table.text(self.header, self.results))
    failures = self._failures()
    for failure in failures:
      print(failure, file=sys.stderr)
    return 1 if failures else 0

  def _failures(self) -> list[str]:
    """Returns a sentence for each reason to exit with 1."""
    texts = []
    for name, result in self.results.items():
      if 'error' in result:
        texts.append(f'{name} failed: {result["error"]}.')
      if name.endswith(_EXACT) and 'equal' in result:
        different = result['answers'] - result['equal']
        if different:
          texts.append(
            f'{name}: {different} of {result["answers"]} answers differ.'
          )
    for name, least in self._options.require.items():
      share = self.results.get(name, {}).get('share_of_bound')
      if share is None or share < least:
        texts.append(
          f'{name}: {share or "no measurement"} instead of at least {least} of'
          ' the bound.'
        )
    return texts

  def _rows(self, case: str) -> Iterator[Row]:
    """Yields the results of a case, each with its name."""
    kind, *words = case.split('-')
    tiny = self._options.tiny
    if kind == 'answers':
      count = self._options.articles
      slots = min(_SLOTS, count)
      yield case, bundled.compare(words[0], words[1], count, slots)
    elif kind == 'rates':
      yield case, rates_lib.measure(tiny)
    elif kind == 'peer':
      yield from self._peer()
    else:
      memory = (jax.devices()[0].memory_stats() or {}).get('bytes_limit')
      rows = speed.measure(
        speed.shapes(tiny)[words[0]],
        words[1],
        (1, 2) if tiny else speed.BATCHES,
        self._rates(),
        memory,
      )
      for batch, result in rows:
        yield f'{case}-{batch}', result

  def _rates(self) -> Mapping[str, float]:
    """Returns the rates of the device, which are measured once."""
    if 'read_bytes_per_s' not in self.results.get('rates', {}):
      self._add('rates', rates_lib.measure(self._options.tiny))
    return self.results['rates']

  def _peer(self) -> Iterator[Row]:
    """Yields the measurements of transformers, in a process of its own."""
    missing = [
      name
      for name in ('torch', 'transformers')
      if importlib.util.find_spec(name) is None
    ]
    if missing or self.header['platform'] != 'gpu':
      reason = f'no {" and ".join(missing)}' if missing else 'no NVIDIA GPU'
      yield 'peer', {'note': f'not run: {reason}'}
      return
    command = [sys.executable, '-m', 'benchmarks.gpu_cases.peer']
    path = os.pathsep.join(filter(None, sys.path))
    with subprocess.Popen(
      command + [str(batch) for batch in _PEER_BATCHES],
      env=os.environ | {'PYTHONPATH': path},
      stdout=subprocess.PIPE,
      text=True,
    ) as child:
      self._child = child
      try:
        for line in child.stdout or ():
          result = json.loads(line)
          yield f'peer-{result["batch"]}', result
        if code := child.wait():
          yield 'peer', {'error': f'ended with exit code {code}'}
      finally:
        child.kill()

  def _add(self, name: str, result: dict[str, Any]) -> None:
    """Keeps a result, prints it, and replaces the file."""
    with self._lock:
      self.results = {**self.results, name: result}
      print(f'{name}: {table.line(result)}', flush=True)
      content = {**self.header, 'results': self.results}
      path = self._options.out
      with open(f'{path}.partial', 'w', encoding='utf-8') as file:
        json.dump(content, file, indent=1)
        file.write('\n')
      os.replace(f'{path}.partial', path)


def _requirements(text: str) -> dict[str, float]:
  """Returns the least share of the bound by case."""
  try:
    pairs = (part.split('=') for part in text.split(',') if part)
    return {name: float(share) for name, share in pairs}
  except ValueError as e:
    raise argparse.ArgumentTypeError(
      f'{text} is not a list such as speed-llama-bf16-8=0.8'
    ) from e


def _options(argv: Sequence[str]) -> argparse.Namespace:
  parser = argparse.ArgumentParser(
    prog='gpu',
    description=__doc__,
    formatter_class=argparse.RawDescriptionHelpFormatter,
  )
  parser.add_argument(
    '--cases',
    default=','.join(CASES),
    help='The beginnings of the names of cases, such as answers,speed-llama.',
  )
  parser.add_argument(
    '--require',
    type=_requirements,
    default={},
    help='The least shares of the bound, such as speed-llama-bf16-8=0.8.',
  )
  parser.add_argument(
    '--deadline',
    type=float,
    default=480.0,
    help='Seconds after which the program stops and prints its table.',
  )
  parser.add_argument(
    '--articles',
    type=int,
    default=512,
    help='The number of articles that the bundled models answer.',
  )
  parser.add_argument('--out', default='gpu.json', help='The JSON file.')
  parser.add_argument(
    '--tiny', action='store_true', help='Use sizes that fit a CPU.'
  )
  options = parser.parse_args(argv)
  options.cases = tuple(options.cases.split(','))
  for case in options.cases:
    if not case or not any(known.startswith(case) for known in CASES):
      parser.error(
        f'--cases has {case or "an empty name"}. Available: {", ".join(CASES)}.'
      )
  if options.articles < 1:
    parser.error(f'--articles={options.articles} is too few. Set at least 1.')
  # With `bazel run`, paths are relative to the user's directory.
  start = os.environ.get('BUILD_WORKING_DIRECTORY', '')
  options.out = os.path.join(start, options.out)
  return options


def main(argv: Sequence[str]) -> int:
  """Runs the program; returns its exit code."""
  options = _options(argv)
  run = _Run(options)
  print(
    f'{run.header["device"]}, JAX {run.header["jax"]} on'
    f' {run.header["platform"]}, Python {run.header["python"]}',
    flush=True,
  )
  fits_cpu = options.tiny or all(c.startswith('answers') for c in options.cases)
  if run.header['platform'] != 'gpu' and not fits_cpu:
    print(
      "gpu: JAX has no GPU. Install NVIDIA's driver and JAX's plugin, such as"
      ' jax[cuda13]. On a CPU, choose --tiny or --cases=answers.',
      file=sys.stderr,
    )
    return 1
  worker = threading.Thread(target=run.run, daemon=True)
  worker.start()
  try:
    worker.join(options.deadline)
  finally:
    code = run.finish()
  if worker.is_alive():  # It compiles or computes, which cannot be stopped.
    sys.stdout.flush()
    os._exit(code)
  return code


if __name__ == '__main__':
  sys.exit(main(sys.argv[1:]))
