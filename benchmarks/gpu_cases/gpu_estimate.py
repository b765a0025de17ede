"""Estimates decode steps on an NVIDIA H200, without a GPU.

  bazel run //benchmarks/gpu_cases:gpu_estimate
  bazel run //benchmarks/gpu_cases:gpu_estimate -- --cases=llama-bf16,gptj

XLA compiles the cases of //benchmarks:gpu for an H100, which has as many
multiprocessors as an H200. Each kernel takes the time for its bytes or its
operations, at rates that an H200 reached (`gpu_times.py`). The result is a
range, because the rates of these kernels were not measured. Models are compiled
with one and with two layers. All further layers are assumed to cost as much as
the second one.
"""

from collections.abc import Sequence
import dataclasses
import math
import sys

from absl import flags

from benchmarks.gpu_cases import gpu_times
from benchmarks.gpu_cases import speed
from saxml_ext.aot import abstract_model
from saxml_ext.aot.tpu import topologies
from saxml_ext.common import program
from saxml_ext.engine import abstract_weights
from saxml_ext.engine import logical
from saxml_ext.engine import platform_configs
from saxml_ext.engine import program_keys
from saxml_ext.engine import state

_CASES = flags.DEFINE_list(
  'cases',
  None,
  'The beginnings of the names of cases, such as llama-bf16; all by default.',
)


@dataclasses.dataclass(frozen=True)
class Case:
  """A decode step.

  Attributes:
    model: The name of a model of `speed.shapes`.
    number_format: A key of `speed.QUANTIZATION`.
    slots: The number of requests.
    aim: The share of the bound that is aimed at; None without an aim.
    kv: The number format of keys and values.
  """

  model: str
  number_format: str
  slots: int
  aim: float | None = None
  kv: str = 'bfloat16'

  @property
  def name(self) -> str:
    """The name, as in //benchmarks:gpu."""
    name = f'{self.model}-{self.number_format}-{self.slots}'
    return name if self.kv == 'bfloat16' else f'{name}-kv-{self.kv}'


CASES = (
  *(
    Case('llama', number_format, slots, aim)
    for number_format, aims in (
      ('bf16', (0.75, 0.80, 0.75, 0.65)),
      ('int8', (0.65, 0.70, 0.65, 0.55)),
      ('fp8', (None,) * len(speed.BATCHES)),
    )
    for slots, aim in zip(speed.BATCHES, aims)
  ),
  Case('gptj', 'int8', 40),
  Case('gptj', 'int8', 40, kv='int8'),
)


def compiled(case: Case, layers: int) -> list[gpu_times.Kernel]:
  """Returns the kernels of a step of a model with fewer layers."""
  shape = speed.shapes(tiny=False)[case.model]
  model = dataclasses.replace(shape.model, num_layers=layers)
  engine = dataclasses.replace(
    speed.engine(shape, (case.slots,)), kv_dtype=case.kv
  )
  run = abstract_model.GpuExecutables(
    state.Settings(model, platform_configs.tiled(engine)),
    abstract_weights.shapes(
      model, 'bfloat16', speed.QUANTIZATION[case.number_format]
    ),
    topologies.H100.describe()[0],
  )
  text = run.lower(program_keys.Decode(case.slots)).compile().as_text()
  prompt, suffix = (
    math.ceil(n / logical.TILE)
    for n in (shape.prompt, shape.beams * shape.answer)
  )
  # In the middle of answers, half of the suffix is in use.
  blocks = (prompt + (suffix + 1) / 2) / (prompt + suffix)
  return gpu_times.kernels(text, blocks)


def row(
  case: Case, one: Sequence[gpu_times.Kernel], two: Sequence[gpu_times.Kernel]
) -> str:
  """Returns the line of a table.

  Args:
    case: The case.
    one: The kernels of the model with one layer.
    two: The kernels of the model with two layers.
  """
  shape = speed.shapes(tiny=False)[case.model]
  if case.kv == 'int8':
    shape = dataclasses.replace(shape, kv_bytes=1)
  layers = shape.model.num_layers
  rows = case.slots * shape.beams
  count = len(one) + (layers - 1) * (len(two) - len(one))
  least, most = (
    gpu_times.ITERATION + a + (layers - 1) * (b - a)
    for a, b in zip(
      gpu_times.step_seconds(one, rows), gpu_times.step_seconds(two, rows)
    )
  )
  bound = speed.bound_seconds(
    shape, case.number_format, case.slots, gpu_times.RATES
  )
  aim = '' if case.aim is None else f'{case.aim:.0%}'
  return (
    f'| {case.name} | {count} | {1e3 * least:.1f} to {1e3 * most:.1f} |'
    f' {1e3 * bound:.1f} | {bound / most:.0%} to {bound / least:.0%} | {aim} |'
  )


def main(argv: Sequence[str]) -> None:
  del argv
  names = [case.name for case in CASES]
  chosen = names if _CASES.value is None else _CASES.value
  unknown = [c for c in chosen if not any(n.startswith(c) for n in names)]
  if unknown or not all(chosen) or not chosen:
    sys.exit(
      f'gpu_estimate: --cases={",".join(chosen)} has'
      f' {unknown[0] if unknown else "an empty name"}. Available:'
      f' {", ".join(names)}.'
    )
  topologies.prepare()
  print('| case | kernels | ms a step, estimated | bound | share | aim |')
  print('|---|---|---|---|---|---|')
  for case in CASES:
    if case.name.startswith(tuple(chosen)):
      print(row(case, compiled(case, 1), compiled(case, 2)), flush=True)


if __name__ == '__main__':
  program.run(main)
