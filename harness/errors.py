"""The error that ends a job of the harness."""

from serve import programs

# The harness starts its cells by serve's code, and their failures are its own.
HarnessError = programs.ServeError


def reason(error: Exception) -> str:
  """Returns an error's text: of an OSError the file and what is wrong with it.

  Without the number that Python puts before it, "[Errno 2]".
  """
  if isinstance(error, OSError) and error.strerror and error.filename:
    return f'{error.filename}: {error.strerror}'
  return str(error)
