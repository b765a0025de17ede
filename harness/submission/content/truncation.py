"""Accuracy logs as submissions hold them: their two ends, and a hash.

Equal to what tools/submission/truncate_accuracy_log.py of mlcommons/inference
makes of a tree, which therefore finds nothing left to do.
"""

from collections.abc import Iterator
import hashlib
import pathlib
import re

from harness.loadgen import loadgen_log

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


def problems(directory: pathlib.Path) -> Iterator[str]:
  """Yields what is wrong with the accuracy log and the hash of a tree.

  The hash of a log that was cut cannot be computed again; only a log that was
  too short to be cut can be compared with it.

  Args:
    directory: The folder of the log and of accuracy.txt.
  """
  log, score = directory / loadgen_log.ACCURACY_LOG, directory / 'accuracy.txt'
  if not log.is_file() or not score.is_file():
    yield f'{directory} must hold {log.name} and {score.name}'
    return
  size = log.stat().st_size
  if size > MAX_BYTES:
    yield f'{log} has {size} bytes; cut it to at most {MAX_BYTES}'
  line = re.search(r'^hash=.*$', score.read_text('utf-8'), re.MULTILINE)
  found = line[0] + '\n' if line else ''
  if (
    not re.fullmatch(r'hash=[0-9a-f]{64}\n', found) or len(set(found[5:-1])) < 3
  ):
    yield (
      f'{score} has no line "hash=" with the SHA-256 of the whole log, but'
      f' {found.strip()!r}'
    )
  elif size < _END_BYTES and found != hash_line(log):
    yield f'{score} has another SHA-256 than {log}, which is whole'
