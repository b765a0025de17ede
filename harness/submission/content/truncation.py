"""Accuracy logs as submissions hold them: their two ends, and a hash.

Equal to what tools/submission/truncate_accuracy_log.py of mlcommons/inference
makes of a tree, which therefore finds nothing left to do.
"""

import hashlib
import pathlib

_END_BYTES = 4096
_GAP = b'\n\n...\n\n'

# The checkers refuse larger ones.
MAX_BYTES = 10 * 1024


def truncated(path: pathlib.Path) -> bytes:
  """The first and the last 4 KiB of a log; a log below 4 KiB as it is.

  Raises:
    OSError: it cannot be read.
  """
  size = path.stat().st_size
  with open(path, 'rb') as file:
    if size < _END_BYTES:
      return file.read()
    head = file.read(_END_BYTES)
    file.seek(size - _END_BYTES)
    return head + _GAP + file.read(_END_BYTES)


def hash_line(path: pathlib.Path) -> str:
  """The line that accuracy.txt says of the whole log.

  Raises:
    OSError: it cannot be read.
  """
  with open(path, 'rb') as file:
    return f'hash={hashlib.file_digest(file, "sha256").hexdigest()}\n'
