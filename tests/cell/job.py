"""Runs the main job as a user does, in its own process, for tests."""

from collections.abc import Sequence
import os
import subprocess
import time

from absl import flags
import psutil

from serve import programs

_JOB_FLAGS = flags.DEFINE_multi_string(
  'job_flag', [], 'NAME=VALUE for the job. May be repeated.'
)

# Without other load, the start takes half a minute, mostly for compiling.
_START_SECS = 1200.0


def is_program(line: Sequence[str], program: str) -> bool:
  """Returns True if a process with this command line runs `program`.

  Args:
    line: The arguments; the first one is a launcher or Python.
    program: The program's path in the repository, without suffix.
  """
  folder, _, name = program.rpartition('/')
  text = ' '.join(line).replace('.', '/')
  # A launcher of rules_python becomes a Python that runs the second file.
  return program in text or f'{folder}/_{name}_stage2_bootstrap' in text


class Job:
  """A job in its own process, with its output in a file."""

  def __init__(self, directory: str, cache: str, values: dict[str, object]):
    """Starts the job.

    Tests with few samples set `min_duration` to 1 ms, because a fast machine may
    answer them in less time than the measured speed predicts.

    Args:
      directory: An empty directory for its output and its results.
      cache: The directory for compiled programs.
      values: The values of flags by name.
    """
    self.results = os.path.join(directory, 'results')
    self._output_path = os.path.join(directory, 'output.txt')
    extra = dict(text.split('=', 1) for text in _JOB_FLAGS.value)
    command = programs.command(
      'harness/offline',
      {
        'results_dir': self.results,
        'cache_dir': os.path.join(directory, 'cache'),
        'jax_cache_dir': cache,
      }
      | values
      | extra,
    )
    with open(self._output_path, 'wb') as output:
      self.process = subprocess.Popen(
        command.argv,
        env=dict(command.env),
        stdout=output,
        stderr=subprocess.STDOUT,
      )

  @property
  def output(self) -> str:
    with open(self._output_path, encoding='utf-8') as file:
      return file.read()

  def read(self, *path: str) -> str:
    """Returns the text of a file of the results."""
    with open(os.path.join(self.results, *path), encoding='utf-8') as file:
      return file.read()

  def wait_for(self, *path: str) -> None:
    """Waits until a file of the results is not empty."""
    file = os.path.join(self.results, *path)
    end = time.monotonic() + _START_SECS
    while not (os.path.exists(file) and os.path.getsize(file)):
      if self.process.poll() is not None or time.monotonic() > end:
        raise AssertionError(f'no {file}; the job says:\n{self.output}')
      time.sleep(0.1)

  def descendants(self) -> list[psutil.Process]:
    """Returns all direct and indirect child processes of the job."""
    return psutil.Process(self.process.pid).children(recursive=True)

  def model_server(self, *words: str) -> psutil.Process:
    """Returns the model server whose command line contains all these words."""
    for process in self.descendants():
      line = process.cmdline()
      if is_program(line, programs.MODEL_SERVER) and set(words) <= set(line):
        return process
    raise AssertionError('no model server among the processes of the job')
