"""The reference implementation as the flags want it, as LoadGen's system."""

from collections.abc import Sequence
import os
import re

from absl import flags
import numpy as np
import torch
import transformers

from harness.data import bundle
from harness.data import summarization_flags
from harness.loadgen import system
from harness.network import network_program
from harness.network import payload
from harness.rules import requirements
from harness.systems import batched
from harness.systems.reference import gptj
from harness.systems.reference import memory
from saxml_ext.common import user_path

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

_BEAM_VARIABLE = 'GPTJ_BEAM_SIZE'


def find_device(name: str) -> torch.device:
  """The device of a name: "cpu", "cuda" (the first GPU) or "cuda:1".

  Raises:
    ValueError: the name is another, or PyTorch sees no such device.
  """
  match = _DEVICE_NAME.fullmatch(name)
  if not match:
    raise ValueError(
      f'--device={name} is not known; write cpu, cuda or cuda:0 (any number)'
    )
  if name == 'cpu':
    return torch.device('cpu')
  index = int(match[1] or 0)
  count = torch.cuda.device_count() if torch.cuda.is_available() else 0
  if index >= count:
    seen = f'{count} CUDA devices' if count else 'no CUDA device'
    raise ValueError(
      f'--device={name}: PyTorch {torch.__version__} sees {seen} here; use'
      ' --device=cpu, or a machine with an NVIDIA GPU, its driver and a CUDA'
      ' build of PyTorch, see docs/systems.md'
    )
  return torch.device('cuda', index)


def beam_size(asked: int | None) -> int:
  """Beams of the search: as asked, else as the reference's variable says.

  Raises:
    ValueError: the variable is no number above 0.
  """
  if asked is not None:
    return asked
  text = os.environ.get(_BEAM_VARIABLE) or str(requirements.BEAM_SIZE)
  if not re.fullmatch('[1-9][0-9]*', text):
    raise ValueError(
      f'the environment variable {_BEAM_VARIABLE} is {text!r}; set it to a'
      f' whole number from 1, such as {requirements.BEAM_SIZE}, or unset it'
    )
  return int(text)


_CHECKPOINT = flags.DEFINE_string(
  'checkpoint',
  bundle.model_dir(),
  'Directory of a GPT-J in the form of Hugging Face. Default: the bundled one.',
)
_DEVICE = flags.DEFINE_string(
  'device', 'cpu', 'Where it computes: cpu, cuda, or cuda:1 for another GPU.'
)
_PRECISION = flags.DEFINE_enum(
  'precision',
  'float32',
  list(_PRECISIONS),
  'Number format. A CPU takes all of them; the formats of 16 bits are faster'
  ' only where it computes with them, and float16 overflows above 65504.',
)
_BEAM_SIZE = flags.DEFINE_integer(
  'beam_size',
  None,
  'Beams of the search; the closed division takes 4 only. Default:'
  ' $GPTJ_BEAM_SIZE, or 4.',
  1,
)
_BATCH_SIZE = flags.DEFINE_integer(
  'batch_size', 1, 'Most samples computed together; the reference takes 1.', 1
)


def load() -> list[payload.Payload]:
  """Token ids of each article's prompt, int32 [T], as "input_ids".

  Raises:
    OSError, ValueError: a file or a flag cannot be used.
  """
  path, config = _checkpoint()
  usual = _usual_prompt(path, config)
  task = summarization_flags.load(path, gptj.longest_prompt(config), usual)
  return [{'input_ids': ids} for ids in task.prompt_ids]


def make(inputs: network_program.Inputs) -> system.System:
  """Loads the model.

  Args:
    inputs: what `load` returns, or the like from another machine.

  Raises:
    OSError, ValueError: a file or a flag cannot be used.
  """
  # What may fail comes before the long part, the reading of the weights.
  device = find_device(_DEVICE.value)
  dtype = _PRECISIONS[_PRECISION.value]
  beams = beam_size(_BEAM_SIZE.value)
  path, config = _checkpoint()
  usual = summarization_flags.max_input_length() or _usual_prompt(path, config)
  tokens = usual + gptj.GENERATION['max_new_tokens']
  sequences = beams * _BATCH_SIZE.value
  memory.check(
    {
      'weights': memory.weights_bytes(config, dtype),
      'cache': memory.cache_bytes(config, dtype, sequences, tokens),
    },
    device,
  )
  model = gptj.load(path, device, dtype)

  def answer(indices: Sequence[int]) -> list[system.Answer]:
    prompts = [inputs[index]['input_ids'].tolist() for index in indices]
    found = gptj.answer(model, prompts, {'num_beams': beams})
    return [system.Answer(np.array(ids, np.int64), len(ids)) for ids in found]

  return batched.BatchedSystem(answer, _BATCH_SIZE.value)


def name() -> str:
  """What computes, for the log of a run over the network."""
  return (
    f'GPT-J by transformers {transformers.__version__} on PyTorch'
    f' {torch.__version__}, {_PRECISION.value}, {_DEVICE.value}'
  )


def _checkpoint() -> tuple[str, transformers.GPTJConfig]:
  path = user_path.resolve(_CHECKPOINT.value)
  return path, gptj.read_config(path)


def _usual_prompt(path: str, config: transformers.GPTJConfig) -> int:
  """Where prompts are cut unless a flag says where, in tokens."""
  if os.path.realpath(path) == os.path.realpath(bundle.model_dir()):
    return bundle.MAX_INPUT_LENGTH
  return min(requirements.MAX_INPUT_LENGTH, gptj.longest_prompt(config))
