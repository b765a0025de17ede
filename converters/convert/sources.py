"""Opens a checkpoint in any format that can be converted."""

import os

from converters.convert import lora as lora_lib
from converters.convert import meta_checkpoint
from converters.hf import checkpoint
from converters.hf import gguf_checkpoint
from saxml_ext.pax import errors


def open_checkpoint(
  directory: str, lora: str = '', size: str = ''
) -> checkpoint.Checkpoint:
  """Returns a checkpoint in the format of Hugging Face, Meta's Llama or GGUF.

  Args:
    directory: The directory, or the path of a GGUF file.
    lora: The directory of a LoRA adapter to merge; '' for none.
    size: The size of the model, a key of llama_sizes.SIZES; '' for any.

  Raises:
    errors.CheckpointError: A file is missing, damaged or refused, or the model
      has another size.
  """
  opened: checkpoint.Checkpoint
  is_gguf = os.path.isfile(directory) or directory.endswith('.gguf')
  is_meta = meta_checkpoint.is_one(directory)
  if lora and (is_gguf or is_meta):
    raise errors.CheckpointError(
      f'{directory} has the format of {"GGUF" if is_gguf else "Meta"}, but'
      f' --lora={lora} changes the tensors of a Hugging Face checkpoint. Set'
      ' --base to the Hugging Face directory of the model.'
    )
  if is_gguf:
    opened = gguf_checkpoint.GGUFCheckpoint(directory)
  elif is_meta:
    opened = meta_checkpoint.MetaCheckpoint(directory, size)
  elif lora:
    opened = lora_lib.MergedCheckpoint(directory, lora)
  else:
    opened = checkpoint.HFCheckpoint(directory)
  if size:
    meta_checkpoint.check_size(opened, size)
  return opened
