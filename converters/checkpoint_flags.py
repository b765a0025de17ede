"""Defines flags of programs that read Hugging Face checkpoints."""

from absl import flags

BASE = flags.DEFINE_string(
  'base',
  None,
  'The directory of the Hugging Face checkpoint, or the id of a model on the'
  ' hub, such as EleutherAI/gpt-j-6b.',
)
PAX = flags.DEFINE_string(
  'pax', None, 'The directory or URL of the PAX checkpoint.'
)
