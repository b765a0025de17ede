"""The -extra flag: "temperature:0.2,stop:'x'"."""

import re
import struct

from saxml_ext.client.transport import options as options_lib
from saxml_ext.common import errors

FLAG_HELP = 'Extra inputs, for example "temperature:0.2,top_k:40".'

_NUMBER = re.compile(
  r'[+-]?(\d[\d_]*\.?[\d_]*|\.\d[\d_]*)([eE][+-]?\d+)?', re.ASCII
)
_SPECIAL = re.compile(r'[+-]?(inf|infinity)|nan', re.IGNORECASE)


def _number(text: str) -> float | None:
  """The number that a text is; None if it is none that float32 can hold."""
  if not _NUMBER.fullmatch(text) and not _SPECIAL.fullmatch(text):
    return None
  try:
    value = float(text)
    struct.pack('<f', value)
  except (OverflowError, ValueError):
    return None
  return value


def set_from_text(options: options_lib.ModelOptions, text: str) -> None:
  """Adds extra inputs to the options of a request.

  Args:
    options: to add them to.
    text: "key:value" items with commas between; a value in quotes is a text,
      one that float32 can hold a number, any other a text.

  Raises:
    InvalidArgument: an item has no ':' or more than one.
  """
  if not text:
    return
  for item in text.split(','):
    if item.count(':') != 1:
      raise errors.InvalidArgument(
        "key-value pair for an extra input must be separated by ':', but "
        f"found '{text}'"
      )
    key, value = item.split(':')
    is_quoted = len(value) >= 2 and value[0] in '\'"' and value[0] == value[-1]
    number = None if is_quoted else _number(value)
    if number is not None:
      options.SetExtraInput(key, number)
    else:
      options.SetExtraInputString(key, value[1:-1] if is_quoted else value)
