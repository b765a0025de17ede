"""Computes the lower bound of serving times from the peaks of the chips.

The bound counts the required computation and reads, from the model's sizes. It
includes no padding, no float32 and no exchange between chips. The time of a
program above its bound is the potential gain.
"""

from collections.abc import Iterator, Mapping
import dataclasses
from typing import Any

from benchmarks.tpu_estimate import chips
from benchmarks.tpu_estimate import lengths as lengths_lib
from benchmarks.tpu_estimate import rules
from benchmarks.tpu_estimate import schedule
from benchmarks.tpu_estimate.compiled import costs

_BYTES = {
  'float32': 4.0,
  'bfloat16': 2.0,
  **dict.fromkeys(('int8', 'int8_weights', 'int8_fine'), 1.0),
}


@dataclasses.dataclass(frozen=True)
class Point:
  """A program's work on each chip.

  Attributes:
    operations: The additions and multiplications of products.
    bytes: The bytes that must be read from HBM.
    seconds: The lower bound in seconds.
  """

  operations: float
  bytes: float
  seconds: float


def matrix_parameters(model: Mapping[str, Any]) -> int:
  """Returns the number of parameters in all layers that multiply each token."""
  d, f = model['model_dim'], model['hidden_dim']
  heads = model['num_heads'] * model['head_dim']
  attention = 2 * d * (heads + _kv_width(model))
  gated = model.get('architecture', {}).get('gated', False)
  return model['num_layers'] * (attention + (3 if gated else 2) * d * f)


def _kv_width(model: Mapping[str, Any]) -> int:
  """Returns the elements of a token's keys in a layer, without repetitions."""
  return (model.get('num_kv_heads') or model['num_heads']) * model['head_dim']


def prefill(programs: costs.Set, rows: int, length: float) -> Point:
  """Returns the work of `rows` prompts of `length` tokens."""
  m = programs.model
  heads = m['num_heads'] * m['head_dim']
  parameters = matrix_parameters(m)
  matrices = 2 * parameters * rows * length
  attention = 2 * m['num_layers'] * heads * rows * length**2
  return _point(programs, matrices, attention, parameters)


def decode(programs: costs.Set, prompt: float, answer: float) -> Point:
  """Returns the work of one step of all slots.

  Args:
    programs: The set.
    prompt: The mean tokens of the prompts. The beams share a prompt's KV.
    answer: The mean tokens of each beam's answer that are already decoded.
  """
  m = programs.model
  heads = m['num_heads'] * m['head_dim']
  beams = programs.slots * programs.beams
  head = m['model_dim'] * m['vocab_size']
  parameters = matrix_parameters(m)
  matrices = 2 * beams * parameters
  seen = prompt + answer
  attention = 4 * m['num_layers'] * heads * beams * seen
  attention += 2 * beams * head  # The head stays in bfloat16.
  keys = programs.slots * prompt + beams * answer
  kv = 2 * m['num_layers'] * _kv_width(m) * keys * _BYTES[programs.kv]
  weights = parameters * _BYTES[programs.weights] + 2 * head
  read = programs.parts * weights + kv
  return _point(programs, matrices, attention, 0, read)


def points(
  programs: costs.Set, requests: lengths_lib.Lengths, batching: schedule.Policy
) -> Iterator[tuple[str, Point]]:
  """Yields the set's step and its prefills, by their names in reports."""
  prompt, output = requests.prompts.mean(), requests.outputs.mean()
  step = decode(programs, prompt, output / 2)
  yield f'decode {programs.slots}, a step', step
  for rows in batching.rows:
    for length in batching.buckets:
      yield f'prefill {rows} x {length}', prefill(programs, rows, length)


def samples_per_second(
  programs: costs.Set, requests: lengths_lib.Lengths
) -> float:
  """Returns the rate without padding and with all slots busy."""
  prompt, output = requests.prompts.mean(), requests.outputs.mean()
  prompts = [prefill(programs, 1, float(n)).seconds for n in requests.prompts]
  step = decode(programs, prompt, output / 2).seconds
  return 1 / (sum(prompts) / len(prompts) + output * step / programs.slots)


def _point(
  programs: costs.Set,
  matrices: float,
  attention: float,
  parameters: float,
  read: float = 0.0,
) -> Point:
  topology = rules.topology_of(programs)
  peaks, count = chips.BY_CHIP[topology.chip], topology.chips
  peak = peaks.int8 if programs.weights == 'int8' else peaks.bf16
  read += programs.parts * parameters * _BYTES[programs.weights]
  computing = (matrices / peak + attention / peaks.bf16) / count
  reading = read / peaks.hbm_bandwidth / count
  return Point(
    (matrices + attention) / count, read / count, max(computing, reading)
  )
