"""Defines the flags of programs that write PAX checkpoints."""

from absl import flags

OVERWRITE = flags.DEFINE_bool(
  'overwrite',
  False,
  'Replace an existing checkpoint when the new one is complete. In a bucket, it'
  ' is deleted at the start.',
)
RESUME = flags.DEFINE_bool(
  'resume', False, 'Continue an interrupted run of the same command.'
)
