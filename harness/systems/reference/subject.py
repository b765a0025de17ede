"""The reference implementation as the flags want it, as LoadGen's system."""

from collections.abc import Sequence
import os

from absl import flags
import numpy as np
import transformers

from harness.data import bundle
from harness.data import summarization
from harness.data import summarization_flags
from harness.loadgen import runner
from harness.systems import batched
from harness.systems import system
from harness.systems.reference import choices
from harness.systems.reference import gptj
from harness.systems.reference import memory
from saxml_ext.common import user_path

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
  list(choices.PRECISIONS),
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


def make() -> runner.Subject:
  """Reads the articles and the model.

  Raises:
    OSError, ValueError: one of them, or a flag, cannot be used.
  """
  # What may fail comes before the long part, the reading of the weights.
  device = choices.device(_DEVICE.value)
  dtype = choices.PRECISIONS[_PRECISION.value]
  beams = choices.beam_size(_BEAM_SIZE.value)
  path = user_path.resolve(_CHECKPOINT.value)
  config = gptj.read_config(path)
  task = _task(path, config)
  prompts = [ids.tolist() for ids in task.prompt_ids]
  tokens = max(map(len, prompts)) + gptj.GENERATION['max_new_tokens']
  sequences = beams * min(_BATCH_SIZE.value, len(prompts))
  memory.check(
    {
      'weights': memory.weights_bytes(config, dtype),
      'cache': memory.cache_bytes(config, dtype, sequences, tokens),
    },
    device,
  )
  model = gptj.load(path, device, dtype)

  def answer(indices: Sequence[int]) -> list[system.Answer]:
    found = gptj.answer(
      model, [prompts[i] for i in indices], {'num_beams': beams}
    )
    return [system.Answer(np.array(ids, np.int64), len(ids)) for ids in found]

  return runner.Subject(
    batched.BatchedSystem(answer, _BATCH_SIZE.value), list(map(len, prompts))
  )


def _task(
  path: str, config: transformers.GPTJConfig
) -> summarization.Summarization:
  """The articles.

  Raises:
    OSError, ValueError: they cannot be read, or are not of this model.
  """
  longest = gptj.longest_prompt(config)
  usual = min(gptj.MAX_INPUT_LENGTH, longest)
  if os.path.realpath(path) == os.path.realpath(bundle.model_dir()):
    usual = bundle.MAX_INPUT_LENGTH
  task = summarization_flags.load(path, longest, usual)
  largest = max(int(ids.max()) for ids in task.prompt_ids)
  if largest >= config.vocab_size:
    raise ValueError(
      f'the tokenizer makes the id {largest}, but the model of {path} has ids'
      f' below {config.vocab_size}; give --tokenizer_path the tokenizer.json of'
      ' this model'
    )
  return task
