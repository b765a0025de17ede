"""Runs LoadGen once against the reference implementation, in one process.

With --network=sut, only the reference runs, and LoadGen is on another machine.
"""

from collections.abc import Sequence
import dataclasses
import os
import re

import torch
import transformers

from harness.benchmarks import all as benchmarks
from harness.benchmarks import benchmark as benchmark_lib
from harness.data import summarization
from harness.loadgen import run as run_lib
from harness.loadgen import runner
from harness.loadgen import system
from harness.network import client
from harness.network import network_program
from harness.network import payload
from harness.systems import launch
from harness.systems.reference import causal_lm
from saxml_ext.common import program as program_lib

_DEVICE_NAME = re.compile(r'cpu|cuda(?::([0-9]+))?')

# The names of the reference's own option, and the shorter ones of CM.
_PRECISIONS = {
  'float32': torch.float32,
  'bfloat16': torch.bfloat16,
  'float16': torch.float16,
  'fp32': torch.float32,
  'bf16': torch.bfloat16,
  'fp16': torch.float16,
}


def find_device(name: str) -> torch.device:
  """Returns the device of a name: "cpu", "cuda" (the first GPU) or "cuda:1".

  Raises:
    ValueError: The name has another form, or PyTorch does not find the device.
  """
  match = _DEVICE_NAME.fullmatch(name)
  if not match:
    raise ValueError(
      f'--device={name} is unknown. Use cpu, cuda or cuda:0 (any number)'
    )
  if name == 'cpu':
    return torch.device('cpu')
  index = int(match[1] or 0)
  count = torch.cuda.device_count() if torch.cuda.is_available() else 0
  if index >= count:
    seen = f'{count} CUDA devices' if count else 'no CUDA device'
    raise ValueError(
      f'--device={name}: PyTorch {torch.__version__} finds {seen} here. Use'
      ' --device=cpu, or a machine with an NVIDIA GPU, its driver and a CUDA'
      ' build of PyTorch (see docs/systems.md)'
    )
  return torch.device('cuda', index)


def beam_size(beams: int | None, benchmark: benchmark_lib.Benchmark) -> int:
  """Returns the number of beams: the given one, or that of the benchmark.

  The environment variable of the benchmark replaces the latter.

  Raises:
    ValueError: The variable is not a number above 0.
  """
  if beams is not None:
    return beams
  variable, usual = benchmark.beam_variable, benchmark.search.beams
  text = os.environ.get(variable) or str(usual)
  if not re.fullmatch('[1-9][0-9]*', text):
    raise ValueError(
      f'the environment variable {variable} is {text!r}. Set it to'
      f' an integer of at least 1, such as {usual}, or unset it'
    )
  return int(text)


def find_dtype(precision: str | None) -> torch.dtype:
  """Returns the type of a number format; float32 for None.

  Raises:
    ValueError: The format is unknown.
  """
  if precision and precision not in _PRECISIONS:
    raise ValueError(
      f'--precision={precision} is unknown. Available: {", ".join(_PRECISIONS)}'
    )
  return _PRECISIONS[precision or 'float32']


def prompts(
  reference: launch.Reference, samples: run_lib.Samples
) -> list[payload.Payload]:
  """Returns the token ids of each article's prompt, int32 [T], as "input_ids".

  Raises:
    OSError, ValueError: A file or a setting cannot be used.
  """
  benchmark = benchmarks.get(reference.benchmark)
  path, config = _checkpoint(reference, benchmark)
  task = summarization.load_beside(
    path,
    causal_lm.longest_prompt(config, benchmark.search.max_tokens),
    _usual_prompt(path, config, benchmark),
    samples,
  )
  return [{'input_ids': ids} for ids in task.prompt_ids]


def make(
  reference: launch.Reference,
  max_input_length: int | None,
  inputs: network_program.Inputs,
) -> system.System:
  """Loads the model.

  Args:
    reference: The settings.
    max_input_length: The number of tokens after which prompts are cut; None:
      the default of the model.
    inputs: The inputs that `prompts` returned, or those from another machine.

  Raises:
    OSError, ValueError: A file or a setting cannot be used.
  """
  # Steps that may fail come before the slow step, the loading of the weights.
  device = find_device(reference.device)
  dtype = find_dtype(reference.precision)
  benchmark = benchmarks.get(reference.benchmark)
  beams = beam_size(reference.beam_size, benchmark)
  path, config = _checkpoint(reference, benchmark)
  ends = causal_lm.end_ids(config)
  tokens = max_input_length or _usual_prompt(path, config, benchmark)
  causal_lm.check_memory(
    {
      'weights': causal_lm.weights_bytes(config, dtype),
      'cache': causal_lm.cache_bytes(
        config,
        dtype,
        beams * reference.batch_size,
        tokens + benchmark.search.max_tokens,
      ),
    },
    device,
  )
  model = causal_lm.load(path, device, dtype)
  search = dataclasses.replace(benchmark.search, beams=beams).generation

  def answer(indices: Sequence[int]) -> list[system.Answer]:
    rows = [inputs[index]['input_ids'].tolist() for index in indices]
    logged = (
      summarization.logged(ids, ends, benchmark)
      for ids in causal_lm.answer(model, rows, search)
    )
    return [system.Answer(data, len(data)) for data in logged]

  return system.BatchedSystem(answer, reference.batch_size)


def _checkpoint(
  reference: launch.Reference, benchmark: benchmark_lib.Benchmark
) -> tuple[str, transformers.PreTrainedConfig]:
  path = reference.inputs['checkpoint']
  return path, causal_lm.read_config(path, benchmark.family)


def _usual_prompt(
  path: str,
  config: transformers.PreTrainedConfig,
  benchmark: benchmark_lib.Benchmark,
) -> int:
  """Returns the number of tokens after which prompts are cut by default."""
  bundle = benchmark.bundle
  if os.path.realpath(path) == os.path.realpath(bundle.model):
    return bundle.max_input_length
  longest = causal_lm.longest_prompt(config, benchmark.search.max_tokens)
  return min(benchmark.prompt.max_tokens, longest)


def main(argv: Sequence[str]) -> None:
  transformers.utils.logging.disable_progress_bar()
  run: run_lib.Run[launch.Reference]
  run = runner.requested_run(argv, launch.Reference)
  reference = run.system
  network_program.main(
    lambda inputs: make(reference, run.samples.max_input_length, inputs),
    lambda: prompts(reference, run.samples),
    f'{benchmarks.get(reference.benchmark).title} by transformers'
    f' {transformers.__version__} on PyTorch'
    f' {torch.__version__}, {reference.precision or "float32"},'
    f' {reference.device}',
    run,
  )


if __name__ == '__main__':
  run_lib.keep(
    run_lib.Run, run_lib.Samples, launch.Reference, client.Nodes, 'network'
  )
  program_lib.run(main, takes_words=True)
