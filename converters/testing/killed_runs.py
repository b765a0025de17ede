"""Runs a converter in a process: measured, or killed and resumed."""

from collections.abc import Callable, Sequence
import dataclasses
import hashlib
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

_POLL_SECONDS = 0.01


@dataclasses.dataclass(frozen=True)
class Run:
  """A run that came to its end."""

  seconds: float
  peak_bytes: int
  output: str


def start(name: str, *arguments: str) -> subprocess.Popen[bytes]:
  """Starts a program of `converters`, by the name of its module."""
  # Where this process finds its modules, be it in Bazel's runfiles or not.
  environment = os.environ | {'PYTHONPATH': os.pathsep.join(sys.path)}
  return subprocess.Popen(
    [sys.executable, '-m', f'converters.{name}', *arguments],
    env=environment,
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
  )


def run(name: str, *arguments: str) -> Run:
  """Runs a program to its end and measures it.

  Raises:
    RuntimeError: The program failed; the text is its output.
  """
  begin = time.monotonic()
  with start(name, *arguments) as process:
    assert process.stdout is not None  # It is the pipe that start() asks for.
    output = process.stdout.read().decode('utf-8', 'replace')
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
  if process.returncode:
    raise RuntimeError(output)
  # Linux counts it in KiB.
  return Run(time.monotonic() - begin, usage.ru_maxrss << 10, output)


def kill(
  start_one: Callable[[], subprocess.Popen[bytes]],
  pax: str,
  variables: int,
  kills: int,
  rng: random.Random,
  jitter: float,
) -> list[int]:
  """Starts a process that writes a checkpoint again and again, and kills it.

  Args:
    start_one: starts one that goes on where the last one was.
    pax: its output directory.
    variables: number of variables of the checkpoint.
    kills: how often it is killed.
    rng: chooses the points.
    jitter: seconds; a kill comes up to so much after a variable is finished.

  Returns:
    How many variables were finished at each kill.
  """
  points = sorted(rng.randrange(variables) for _ in range(kills))
  finished = []
  for point in points:
    process = start_one()
    try:
      while process.poll() is None and _finished(pax, variables) < point:
        time.sleep(_POLL_SECONDS)
      time.sleep(rng.uniform(0, jitter))
    finally:
      process.send_signal(signal.SIGKILL)
      process.communicate()
    finished.append(_finished(pax, variables))
  return finished


def _finished(pax: str, variables: int) -> int:
  """How many variables the process has finished by now."""
  step_dir = os.path.join(pax, 'checkpoint_00000000')
  if os.path.exists(step_dir):
    return variables
  try:
    names = os.listdir(f'{step_dir}.journal')
  except FileNotFoundError:
    return 0
  return sum(name.startswith('params.') for name in names)


def digests(directory: str) -> dict[str, str]:
  """SHA-256 of every file below a directory, by relative path."""
  root = pathlib.Path(directory)
  found = {}
  for path in sorted(root.rglob('*')):
    if path.is_file():
      with path.open('rb') as f:
        digest = hashlib.file_digest(f, 'sha256')
      found[str(path.relative_to(root))] = digest.hexdigest()
  return found


def tree_bytes(directory: str, names: Sequence[str]) -> int:
  """Bytes of the files that have these relative paths."""
  return sum(os.path.getsize(os.path.join(directory, n)) for n in names)
