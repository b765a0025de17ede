"""Runs LoadGen once against the reference implementation, in one process.

With --network=sut, only the reference runs, and LoadGen is on another machine.
"""

from collections.abc import Sequence
import os
import re

import msgspec
import numpy as np
import torch
import transformers

from harness.data import bundle
from harness.data import summarization
from harness.loadgen import run as run_lib
from harness.loadgen import runner
from harness.loadgen import system
from harness.network import client
from harness.network import network_program
from harness.network import payload
from harness.rules import requirements
from harness.systems import launch
from harness.systems.reference import gptj
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


def beam_size(asked: int | None) -> int:
  """Returns the number of beams: the given one, or that of $GPTJ_BEAM_SIZE.

  The default is that of the reference, 4.

  Raises:
    ValueError: The variable is not a number above 0.
  """
  if asked is not None:
    return asked
  text = os.environ.get(launch.BEAM_VARIABLE) or str(requirements.BEAM_SIZE)
  if not re.fullmatch('[1-9][0-9]*', text):
    raise ValueError(
      f'the environment variable {launch.BEAM_VARIABLE} is {text!r}. Set it to'
      f' an integer of at least 1, such as {requirements.BEAM_SIZE}, or unset'
      ' it'
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
  path, config = _checkpoint(reference)
  task = summarization.load_beside(
    path,
    gptj.longest_prompt(config),
    _usual_prompt(path, config),
    *msgspec.structs.astuple(samples),
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
  beams = beam_size(reference.beam_size)
  path, config = _checkpoint(reference)
  tokens = max_input_length or _usual_prompt(path, config)
  gptj.check_memory(
    {
      'weights': gptj.weights_bytes(config, dtype),
      'cache': gptj.cache_bytes(
        config,
        dtype,
        beams * reference.batch_size,
        tokens + requirements.MAX_NEW_TOKENS,
      ),
    },
    device,
  )
  model = gptj.load(path, device, dtype)

  def answer(indices: Sequence[int]) -> list[system.Answer]:
    rows = [inputs[index]['input_ids'].tolist() for index in indices]
    found = gptj.answer(model, rows, {'num_beams': beams})
    return [system.Answer(np.array(ids, np.int64), len(ids)) for ids in found]

  return system.BatchedSystem(answer, reference.batch_size)


def _checkpoint(
  reference: launch.Reference,
) -> tuple[str, transformers.GPTJConfig]:
  path = reference.inputs['checkpoint']
  return path, gptj.read_config(path)


def _usual_prompt(path: str, config: transformers.GPTJConfig) -> int:
  """Returns the number of tokens after which prompts are cut by default."""
  if os.path.realpath(path) == os.path.realpath(bundle.model_dir()):
    return bundle.MAX_INPUT_LENGTH
  return min(requirements.MAX_INPUT_LENGTH, gptj.longest_prompt(config))


def main(argv: Sequence[str]) -> None:
  transformers.utils.logging.disable_progress_bar()
  run: run_lib.Run[launch.Reference]
  run = runner.asked(argv, launch.Reference)
  reference = run.system
  network_program.main(
    lambda inputs: make(reference, run.samples.max_input_length, inputs),
    lambda: prompts(reference, run.samples),
    f'GPT-J by transformers {transformers.__version__} on PyTorch'
    f' {torch.__version__}, {reference.precision or "float32"},'
    f' {reference.device}',
    run,
  )


if __name__ == '__main__':
  run_lib.keep(
    run_lib.Run, run_lib.Samples, launch.Reference, client.Nodes, 'network'
  )
  program_lib.run(main, takes_words=True)
