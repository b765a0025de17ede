"""Defines flags of programs that read Hugging Face checkpoints."""

from absl import flags

BASE = flags.DEFINE_string(
  'base',
  None,
  'Directory of the Hugging Face checkpoint, or the id of a model on its hub,'
  ' such as EleutherAI/gpt-j-6b.',
)
PAX = flags.DEFINE_string(
  'pax', None, 'Directory or URL of the PAX checkpoint.'
)
