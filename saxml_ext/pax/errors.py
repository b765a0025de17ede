"""The errors that every reader and writer of checkpoints here raises."""


class CheckpointError(ValueError):
  """A checkpoint cannot be read or written.

  The message names the file or tensor, what was expected, what was found and
  what the user can do about it.
  """


class UnwritableError(CheckpointError):
  """The place that a checkpoint is written to refuses: full, read-only ..."""
