"""Computes the lower bounds of our contenders, with rates of their workers."""

from benchmarks import contenders
from benchmarks import floor as floor_lib
from benchmarks import measure
from benchmarks import settings as settings_lib

Floors = dict[tuple[str, int], floor_lib.Floor]


def measure_floors(
  settings: settings_lib.Settings, result: measure.ModeResult
) -> tuple[Floors, dict[str, floor_lib.Rates]]:
  """Returns the bounds by (name, requests), and the rates by name.

  Answers without a fixed length count with the length that was generated.
  """
  requests = settings.requests()
  floors: Floors = {}
  rates = {}
  for entry in result.entries:
    if entry.contender.engine != contenders.OURS:
      continue
    shape = _shape(settings, result.mode, entry.contender.dtype)
    lengths = [(len(r.tokens), len(a)) for r, a in zip(requests, entry.answers)]
    context = sum(p + a / 2 for p, a in lengths) / len(lengths)
    measured = entry.worker.ask(
      'rates',
      read_bytes=int(shape.step_bytes(context)),
      rows=shape.slots * shape.beams,
    )
    name = entry.contender.name
    rates[name] = floor_lib.Rates(**measured)
    for count in settings.counts:
      floors[name, count] = floor_lib.floor(shape, lengths[:count], rates[name])
  return floors, rates


def _shape(
  settings: settings_lib.Settings, mode: str, dtype: str
) -> floor_lib.Shape:
  config = settings.config
  return floor_lib.Shape(
    layers=config['n_layer'],
    dim=config['n_embd'],
    hidden=config['n_inner'] or 4 * config['n_embd'],
    vocab=config['vocab_size'],
    slots=min(settings.slots, settings.counts[-1]),
    beams=settings.beams_of(mode),
    dtype=dtype,
  )
