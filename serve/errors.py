"""The error that ends a program which starts others."""


class ServeError(Exception):
  """The program cannot go on. The text says why, and where to look."""
