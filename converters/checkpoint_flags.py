"""Defines flags of programs that read Hugging Face checkpoints."""

from absl import flags

from converters.convert import sources
from converters.hf import checkpoint
from converters.hf import hub
from saxml_ext.common import user_path

BASE = flags.DEFINE_string(
  'base',
  None,
  'The directory of the Hugging Face checkpoint, or the id of a model on the'
  ' hub, such as EleutherAI/gpt-j-6b. It may also be a GGUF file, or a directory'
  ' of Meta, with params.json and consolidated.NN.pth.',
)
LORA = flags.DEFINE_string(
  'lora',
  '',
  'The directory of a LoRA adapter of PEFT for --base. It is merged into the'
  ' weights.',
)
PAX = flags.DEFINE_string(
  'pax', None, 'The directory or URL of the PAX checkpoint.'
)


def open_base(size: str = '') -> checkpoint.Checkpoint:
  """Opens the checkpoint that --base and --lora state.

  Args:
    size: The size of the model that --model-size states; '' for none.

  Raises:
    errors.CheckpointError: The checkpoint is missing, damaged or refused.
  """
  lora = user_path.resolve(LORA.value) if LORA.value else ''
  return sources.open_checkpoint(hub.locate(BASE.value), lora, size)
