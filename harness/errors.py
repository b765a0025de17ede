"""Defines the error that ends a job of the harness."""

from serve import programs

# The harness starts its cells with the code of serve, so both raise the same
# error.
HarnessError = programs.ServeError


def reason(error: Exception) -> str:
  """Returns the text of an error without the number that Python adds.

  For an OSError, that is the file and the cause, without a prefix such as
  "[Errno 2]".
  """
  if isinstance(error, OSError) and error.strerror and error.filename:
    return f'{error.filename}: {error.strerror}'
  return str(error)
