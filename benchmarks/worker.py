"""Starts, calls and stops workers, on the side of the benchmark."""

from collections.abc import Sequence
import json
import os
import signal
import subprocess
import sys
from typing import Any

import psutil

from benchmarks import contenders

# In Bazel, this file is in the runfiles, which have the repository's layout.
ROOT = os.path.abspath(
  os.path.join(os.path.dirname(os.path.abspath(__file__)), '..')
)
_TAIL_LINES = 12

# These variables limit all engines to AVX2. Each library has its own names.
AVX2 = {
  'CT2_FORCE_CPU_ISA': 'AVX2',
  'MKL_ENABLE_INSTRUCTIONS': 'AVX2',
  'ONEDNN_MAX_CPU_ISA': 'AVX2',
  'DNNL_MAX_CPU_ISA': 'AVX2',
  'ATEN_CPU_CAPABILITY': 'avx2',
  'OPENBLAS_CORETYPE': 'Haswell',
}
XLA_AVX2 = '--xla_cpu_max_isa=AVX2'


class WorkerError(Exception):
  """An error: a worker failed, or its program or libraries are missing."""


def idlest_cores(count: int) -> tuple[int, ...]:
  """Returns the cores that other processes use least at the moment.

  Raises:
    ValueError: The machine has fewer cores.
  """
  ours = os.sched_getaffinity(0)
  if count > len(ours):
    raise ValueError(
      f'--threads is {count}, but this process may use only {len(ours)} cores.'
    )
  busy = psutil.cpu_percent(interval=1, percpu=True)
  return tuple(sorted(sorted(ours, key=lambda core: busy[core])[:count]))


class Worker:
  """A contender in its own process, pinned to some cores."""

  def __init__(
    self,
    contender: contenders.Contender,
    cores: Sequence[int],
    log_path: str,
    xla_flags: str = '',
  ):
    """Starts the process, which answers after it has imported its libraries.

    Args:
      contender: The contender whose program runs.
      cores: The cores to run on, one for each thread.
      log_path: The path of the file that receives the output.
      xla_flags: The XLA flags in addition to those of the environment.
    """
    self.contender = contender
    self._log_path = log_path
    argv, environment = command(contender.program)
    environment |= _threading(len(cores), xla_flags)
    os.makedirs(os.path.dirname(log_path), exist_ok=True)
    before = os.sched_getaffinity(0)
    # The child inherits the cores from its start. Libraries choose the sizes of
    # their thread pools by them.
    os.sched_setaffinity(0, cores)
    try:
      with open(log_path, 'wb') as log:
        self._process = subprocess.Popen(
          argv,
          stdin=subprocess.PIPE,
          stdout=subprocess.PIPE,
          stderr=log,
          env=environment,
          text=True,
          # Ctrl-C reaches only the benchmark, which then stops its workers.
          start_new_session=True,
        )
    finally:
      os.sched_setaffinity(0, before)
    # Popen sets both because of PIPE.
    assert self._process.stdin is not None
    assert self._process.stdout is not None
    self._commands = self._process.stdin
    self._answers = self._process.stdout

  def ask(self, command: str, **arguments) -> Any:
    """Sends a command and waits for the answer.

    Raises:
      WorkerError: The worker reports an error, or has ended.
    """
    line = json.dumps({'command': command, **arguments})
    try:
      print(line, file=self._commands, flush=True)
      answer = self._answers.readline()
    except BrokenPipeError:
      answer = ''
    if not answer:
      code = self._process.wait()
      raise WorkerError(
        f'{self.contender.name} ended with code {code}: {self._reason()}'
      )
    answer = json.loads(answer)
    if 'error' in answer:
      raise WorkerError(f'{self.contender.name}: {answer["error"]}')
    return answer['value']

  def stop(self) -> None:
    """Kills the worker and its children at once; no state is lost."""
    if self._process.returncode is None:
      # The worker leads its own process group, which exists until it is waited
      # for.
      os.killpg(self._process.pid, signal.SIGKILL)
    self._process.wait()
    self._answers.close()
    try:
      self._commands.close()
    except BrokenPipeError:
      pass  # Nobody reads the unsent data any more.

  def _reason(self) -> str:
    with open(self._log_path, encoding='utf-8', errors='replace') as file:
      lines = [line.rstrip() for line in file if line.strip()]
    errors = [line for line in lines if 'Error' in line]
    return (errors or lines[-_TAIL_LINES:] or ['its log is empty'])[-1]


def command(program: str) -> tuple[list[str], dict[str, str]]:
  """Returns Bazel's launcher of a program, or its module without Bazel."""
  environment = dict(os.environ)
  launcher = os.path.join(ROOT, program)
  if os.path.isfile(launcher) and os.access(launcher, os.X_OK):
    # The launcher sets its own path, with only its own libraries.
    environment.pop('PYTHONPATH', None)
    return [launcher], environment
  path = [ROOT, environment.get('PYTHONPATH', '')]
  environment['PYTHONPATH'] = os.pathsep.join(filter(None, path))
  module = program.replace('/', '.')
  return [sys.executable, '-P', '-m', module], environment


def _threading(threads: int, xla_flags: str) -> dict[str, str]:
  """Returns variables that limit the threads of numeric libraries."""
  flags = f'{os.environ.get("XLA_FLAGS", "")} {xla_flags}'
  if threads == 1:
    flags += ' --xla_cpu_multi_thread_eigen=false'
  return {
    'XLA_FLAGS': flags.strip(),
    'NPROC': str(threads),  # The size of XLA's thread pool.
    'OMP_NUM_THREADS': str(threads),
    'OPENBLAS_NUM_THREADS': str(threads),
    'MKL_NUM_THREADS': str(threads),
    'TOKENIZERS_PARALLELISM': 'false',
    'HF_HUB_OFFLINE': '1',
    'JAX_PLATFORMS': 'cpu',
  }
