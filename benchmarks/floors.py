"""Computes the lower bound of each contender from the processor's peak rates."""

import json
import os
import subprocess

from benchmarks import floor as floor_lib
from benchmarks import measure
from benchmarks import settings as settings_lib
from benchmarks import worker as worker_lib

Floors = dict[tuple[str, int], floor_lib.Floor]

_PEAKS = 'benchmarks/peaks/peaks'
# No core's cache is this large, and reading more is not slower.
_LARGEST_READ = 1 << 29
_PRODUCTS = dict.fromkeys(('int4', 'q8_0', 'q4_0'), 'int8')


def measure_floors(
  settings: settings_lib.Settings, result: measure.ModeResult
) -> tuple[Floors, dict[tuple[str, int], floor_lib.Rates]]:
  """Returns the bounds and the rates by (name, requests).

  Answers without a fixed length count with the length that was generated.

  Raises:
    worker_lib.WorkerError: The rates cannot be measured.
  """
  requests = settings.requests()
  todo = []
  for entry in result.entries:
    lengths = [(len(r.tokens), len(a)) for r, a in zip(requests, entry.answers)]
    for count in settings.counts:
      shape = floor_lib.Shape(
        settings.sizes,
        slots=min(settings.slots, count),
        beams=settings.beams_of(result.mode),
        dtype=entry.contender.dtype,
        kv=entry.loaded['kv'],
      )
      part = lengths[:count]
      context = sum(p + a / 2 for p, a in part) / len(part)
      size = min(int(shape.step_bytes(context)), _LARGEST_READ)
      todo.append(((entry.contender.name, count), shape, part, size))
  peaks = _peaks(settings.cores[0], sorted({size for *_, size in todo}))
  floors: Floors = {}
  rates = {}
  for key, shape, part, size in todo:
    dtype = _PRODUCTS.get(shape.dtype, shape.dtype)
    rates[key] = floor_lib.Rates(
      read=peaks['read'][size],
      products=peaks[dtype],
      attention=peaks['bfloat16' if dtype == 'int8' else dtype],
    )
    floors[key] = floor_lib.floor(shape, part, rates[key])
  return floors, rates


def _peaks(core: int, sizes: list[int]) -> dict:
  """Measures the peaks of a core; `read` maps each size to a rate."""
  avx2 = set(worker_lib.AVX2.items()) <= set(os.environ.items())
  level = 'avx2' if avx2 else 'best'
  before = os.sched_getaffinity(0)
  os.sched_setaffinity(0, [core])
  try:
    done = subprocess.run(
      [os.path.join(worker_lib.ROOT, _PEAKS), level, *map(str, sizes)],
      capture_output=True,
      text=True,
      check=False,
    )
  except OSError as error:
    raise worker_lib.WorkerError(
      f'the peak rates need {_PEAKS}: {error}. Run the benchmark with Bazel.'
    ) from error
  finally:
    os.sched_setaffinity(0, before)
  if done.returncode:
    raise worker_lib.WorkerError(done.stderr.strip())
  peaks = json.loads(done.stdout)
  return {**peaks, 'read': dict(zip(sizes, peaks['read'], strict=True))}
