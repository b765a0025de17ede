"""What goes wrong in the harness, apart from wrong input."""


class HarnessError(Exception):
  """A job cannot go on; the text says why, and where to look."""
