"""Runs a converter in a process and measures it, or kills and resumes it."""

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
  """A completed run."""

  seconds: float
  peak_bytes: int
  output: str


def start(name: str, *arguments: str) -> subprocess.Popen[bytes]:
  """Starts a program of `converters`, given the name of its module."""
  # The child finds its modules on the path of this process, inside or outside
  # of Bazel's runfiles.
  environment = os.environ | {'PYTHONPATH': os.pathsep.join(sys.path)}
  return subprocess.Popen(
    [sys.executable, '-m', f'converters.{name}', *arguments],
    env=environment,
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
  )


def run(name: str, *arguments: str) -> Run:
  """Runs a program to completion and measures it.

  Args:
    name: The name of the program's module.
    *arguments: The arguments of the program.

  Raises:
    RuntimeError: The program failed. The message is its output.
  """
  begin = time.monotonic()
  with start(name, *arguments) as process:
    assert process.stdout is not None  # start() requests a pipe.
    output = process.stdout.read().decode('utf-8', 'replace')
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
  if process.returncode:
    raise RuntimeError(output)
  # Linux reports this size in KiB.
  return Run(time.monotonic() - begin, usage.ru_maxrss << 10, output)


def kill(
  start_one: Callable[[], subprocess.Popen[bytes]],
  pax: str,
  variables: int,
  kills: int,
  rng: random.Random,
  jitter: float,
) -> list[int]:
  """Starts a process that writes a checkpoint, and kills it, repeatedly.

  Args:
    start_one: A function that starts a process. The process resumes the work of
      the previous one.
    pax: The output directory of the process.
    variables: The number of variables of the checkpoint.
    kills: The number of kills.
    rng: The generator of random points.
    jitter: The maximum delay in seconds between the end of a variable and a
      kill.

  Returns:
    The number of finished variables at each kill.
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
  """Returns the number of variables that the process has finished."""
  step_dir = os.path.join(pax, 'checkpoint_00000000')
  if os.path.exists(step_dir):
    return variables
  try:
    names = os.listdir(f'{step_dir}.journal')
  except FileNotFoundError:
    return 0
  return sum(name.startswith('params.') for name in names)


def digests(directory: str) -> dict[str, str]:
  """Returns the SHA-256 of every file below a directory, by relative path."""
  root = pathlib.Path(directory)
  by_path = {}
  for path in sorted(root.rglob('*')):
    if path.is_file():
      with path.open('rb') as f:
        digest = hashlib.file_digest(f, 'sha256')
      by_path[str(path.relative_to(root))] = digest.hexdigest()
  return by_path


def tree_bytes(directory: str, names: Sequence[str]) -> int:
  """Returns the total size of the files with these relative paths, in bytes."""
  return sum(os.path.getsize(os.path.join(directory, n)) for n in names)
