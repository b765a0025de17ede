"""Defines the flags of programs that write PAX checkpoints."""

from absl import flags

OVERWRITE = flags.DEFINE_bool(
  'overwrite',
  False,
  'Replace the checkpoint that is there, once the new one is complete; in a'
  ' bucket, at the start.',
)
RESUME = flags.DEFINE_bool(
  'resume', False, 'Go on with what an interrupted run of the command left.'
)
