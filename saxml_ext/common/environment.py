"""Environment variables that stand in for flags that are not given.

Published set-ups of Sax export them once and then type commands without flags.
SAX_ROOT is read by `cell.sax_root`.
"""

import os

from saxml_ext.common import errors

CELL = 'SAX_CELL'
FS_ROOT = 'SAX_FS_ROOT'
ADMIN_PORT = 'SAX_ADMIN_SERVER_PORT'
_MAX_PORT = 65535


def text(flag_value: str | None, variable: str) -> str:
  """A flag's value, else that of a variable, else ''."""
  return flag_value or os.environ.get(variable, '')


def port(flag_value: int | None, variable: str, default: int) -> int:
  """A TCP port: a flag's value, else that of a variable, else a default.

  Raises:
    InvalidArgument: the variable is not a port number.
  """
  if flag_value is not None:
    return flag_value
  told = os.environ.get(variable, '')
  if not told:
    return default
  if not told.isascii() or not told.isdigit() or int(told) > _MAX_PORT:
    raise errors.InvalidArgument(
      f'the environment variable {variable}="{told}" is not a port: set it to'
      f' a number from 0 to {_MAX_PORT}, or give --port'
    )
  return int(told)
