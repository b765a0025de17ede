"""Opens a checkpoint in any format that can be converted."""

from converters.convert import lora as lora_lib
from converters.convert import meta_checkpoint
from converters.hf import checkpoint
from saxml_ext.pax import errors


def open_checkpoint(
  directory: str, lora: str = '', size: str = ''
) -> checkpoint.Checkpoint:
  """Returns a checkpoint in the format of Hugging Face or of Meta's Llama.

  Args:
    directory: The directory.
    lora: The directory of a LoRA adapter to merge; '' for none.
    size: The size of the model, a key of llama_sizes.SIZES; '' for any.

  Raises:
    errors.CheckpointError: A file is missing, damaged or refused, or the model
      has another size.
  """
  found: checkpoint.Checkpoint
  if meta_checkpoint.is_one(directory):
    if lora:
      raise errors.CheckpointError(
        f'{directory} has the format of Meta, but --lora={lora} changes the'
        ' tensors of a Hugging Face checkpoint. Set --base to the Hugging Face'
        ' directory of the model.'
      )
    found = meta_checkpoint.MetaCheckpoint(directory, size)
  elif lora:
    found = lora_lib.MergedCheckpoint(directory, lora)
  else:
    found = checkpoint.HFCheckpoint(directory)
  if size:
    meta_checkpoint.check_size(found, size)
  return found
