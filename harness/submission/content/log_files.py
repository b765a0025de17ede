"""Produces a submission's accuracy logs and mlperf.conf from LoadGen's logs.

An accuracy log in a submission consists of the log's two ends, and its hash is
in accuracy.txt. The output is identical to that of
tools/submission/truncate_accuracy_log.py in mlcommons/inference, so that tool
does not change the tree any more.

Submissions until v4.1 also contain mlperf.conf next to user.conf. MLCommons
wrote this file, and it is not part of this repository. It is copied from the
user's checkout of mlcommons/inference. Without a checkout, the settings of the
run are read from LoadGen's log and written in the same format.
"""

from collections.abc import Iterator
import hashlib
import pathlib
import re

from harness.loadgen import loadgen_log
from harness.results import figures
from harness.submission import git

_END_BYTES = 4096
_GAP = b'\n\n...\n\n'

# The checkers reject larger logs.
MAX_BYTES = 10 * 1024

MLPERF_CONF = 'mlperf.conf'
_CONF_PATHS = ('mlperf.conf', 'loadgen/mlperf.conf')

# Settings of mlperf.conf. LoadGen logs them with the prefix "effective_", two
# of them under other names.
_SETTINGS = (
  'min_query_count',
  'min_duration',
  'performance_sample_count_override',
  'qsl_rng_seed',
  'sample_index_rng_seed',
  'schedule_rng_seed',
  'sample_concatenate_permutation',
)
_LOGGED = {
  'min_duration': 'min_duration_ms',
  'performance_sample_count_override': 'performance_sample_count',
}


def truncated(path: pathlib.Path) -> bytes:
  """Returns the first and last 4 KiB of a log, or all of a log below 4 KiB.

  Raises:
    OSError: The log cannot be read.
  """
  size = path.stat().st_size
  with open(path, 'rb') as file:
    if size < _END_BYTES:
      return file.read()
    head = file.read(_END_BYTES)
    file.seek(size - _END_BYTES)
    return head + _GAP + file.read(_END_BYTES)


def hash_line(path: pathlib.Path) -> str:
  """Returns the line of accuracy.txt with the hash of the whole log.

  Raises:
    OSError: The log cannot be read.
  """
  with open(path, 'rb') as file:
    return f'hash={hashlib.file_digest(file, "sha256").hexdigest()}\n'


def truncation_problems(directory: pathlib.Path) -> Iterator[str]:
  """Yields the problems of the accuracy log and the hash in a tree.

  The hash of a truncated log cannot be verified. Only logs that are too short
  to be truncated are compared with their hash.

  Args:
    directory: The folder of the log and of accuracy.txt.
  """
  log, score = (
    directory / loadgen_log.ACCURACY_LOG,
    directory / figures.ACCURACY_FILE,
  )
  if not log.is_file() or not score.is_file():
    yield f'{directory} must have {log.name} and {score.name}.'
    return
  size = log.stat().st_size
  if size > MAX_BYTES:
    yield f'{log} has {size} bytes. Truncate it to at most {MAX_BYTES} bytes.'
  line = re.search(r'^hash=.*$', score.read_text('utf-8'), re.MULTILINE)
  head = line[0] + '\n' if line else ''
  if not re.fullmatch(r'hash=[0-9a-f]{64}\n', head) or len(set(head[5:-1])) < 3:
    yield (
      f'{score} has no line "hash=" with the SHA-256 of the whole log. It has'
      f' {head.strip()!r}.'
    )
  elif size < _END_BYTES and head != hash_line(log):
    yield f'{score} has another SHA-256 than the complete log {log}.'


def official_conf(inference_dir: pathlib.Path, round_name: str) -> bytes | None:
  """Returns a round's mlperf.conf from a checkout, or None if it has none.

  Args:
    inference_dir: The checkout. The file is read from the tag of the round.
    round_name: The round, such as "v4.0".
  """
  for path in _CONF_PATHS:
    shown = git.run('-C', inference_dir, 'show', f'{round_name}:{path}')
    if shown.returncode == 0 and shown.stdout:
      return shown.stdout
  return None


def conf_of_log(
  log: loadgen_log.RunLog, benchmark: str, scenario: str
) -> bytes:
  """Returns the settings of a run in the format of mlperf.conf.

  Args:
    log: The log of the performance run.
    benchmark: LoadGen's name of the benchmark.
    scenario: LoadGen's name of the scenario.
  """
  lines = ['# The settings of this run, as LoadGen logged them.']
  for name in _SETTINGS:
    value = log.values.get(f'effective_{_LOGGED.get(name, name)}')
    if value is not None:
      value = int(value) if isinstance(value, bool) else value
      lines.append(f'{benchmark}.{scenario}.{name} = {value}')
  return ('\n'.join(lines) + '\n').encode()
