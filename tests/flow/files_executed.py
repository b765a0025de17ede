"""Prints the files that execute one Generate call and one Offline run.

  bazel run //tests/flow:files_executed

A file counts if one of its functions runs, in any thread. Imports do not count.
The lists in docs/architecture.md are the limit. Generate is traced in the
client and in the model server while the server is warm. Functions that also run
without a call are periodic work, and do not count. The Offline run is traced in
`//harness:offline` and in its LoadGen process, from start to end.
"""

from collections.abc import Iterable, Iterator, Sequence
import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from harness.benchmarks import gptj
from saxml_ext.client import sax
from saxml_ext.common import program
from serve import children
from serve import local_cell
from serve import programs
from serve import progress as progress_lib
from tests.flow import recorder

GENERATE = 'Generate'
OFFLINE = 'Offline'

# A function: its file and its name.
_Function = tuple[str, str]

_CALLS = 5
# The time to handle a signal.
_SETTLE_SECS = 0.1
# A window without a call. The server joins its cell every two seconds, and its
# other periodic work is more frequent.
_IDLE_SECS = 2.5


def install(directory: str) -> dict[str, str]:
  """Returns the environment that makes a Python process record itself.

  Args:
    directory: The directory for the records and the hook.
  """
  version = f'python{sys.version_info.major}.{sys.version_info.minor}'
  site = pathlib.Path(directory, 'base', 'lib', version, 'site-packages')
  site.mkdir(parents=True)
  shutil.copyfile(recorder.__file__, site / 'usercustomize.py')
  records = pathlib.Path(directory, 'records')
  records.mkdir()
  return {
    'PYTHONUSERBASE': str(site.parents[2]),
    recorder.OUT: str(records),
  }


def read(record: pathlib.Path) -> tuple[str, dict[int, set[_Function]]]:
  """Returns the program of a recorded process, and its functions by window."""
  name, *lines = record.read_text('utf-8').splitlines()
  functions: dict[int, set[_Function]] = {}
  for line in lines:
    window, file, function = line.split('\t')
    functions.setdefault(int(window), set()).add((file, function))
  return name, functions


class _Cell(children.Children):
  """The processes of a cell, by name."""

  def __init__(self) -> None:
    super().__init__()
    self.named: dict[str, children.Child] = {}

  def start(
    self,
    name: str,
    command: programs.Command,
    log_path: str,
    files: Sequence[int] = (),
  ) -> children.Child:
    self.named[name] = super().start(name, command, log_path, files)
    return self.named[name]

  @contextlib.contextmanager
  def without_admin(self) -> Iterator[None]:
    """Suspends the admin server, which would ask for the server's status."""
    admin = self.named['admin server'].process.pid
    os.kill(admin, signal.SIGSTOP)
    try:
      yield
    finally:
      os.kill(admin, signal.SIGCONT)


def generate(directory: str) -> list[str]:
  """Returns the files that run in every one of several Generate calls."""
  env = install(directory)
  records = pathlib.Path(env[recorder.OUT])
  os.environ.update(env)
  group = _Cell()
  with group:
    cell = local_cell.LocalCell(
      group,
      directory,
      directory,
      None,
      progress_lib.Progress(),
      program_set=gptj.BUNDLE.programs,
    )
    cell.start()
    assert cell.model_server
    server = cell.model_server.process.pid
    checkpoint = gptj.BUNDLE.pax
    assert checkpoint
    model_id = cell.publish(
      local_cell.Model('gptj', gptj.BUNDLE.params, checkpoint, {})
    )
    recorder.start(str(records))
    model = sax.Model(model_id).LM()
    model.Generate('1,2,3')  # This opens the connection.
    with group.without_admin():
      for _ in range(_CALLS):
        os.kill(server, signal.SIGUSR2)
        recorder.next_window()
        time.sleep(_SETTLE_SECS)
        model.Generate('1,2,3')
        os.kill(server, signal.SIGUSR2)
        recorder.next_window()
        time.sleep(_SETTLE_SECS)
      # This is the last window of both processes.
      time.sleep(_IDLE_SECS)
  sys.setprofile(None)
  functions = set()
  for pid in (server, os.getpid()):
    _, windows = read(records / str(pid))
    calls = [windows.get(2 * i + 1, set()) for i in range(_CALLS)]
    idle = windows.get(2 * _CALLS, set())
    functions |= set.intersection(*calls) - idle
  return sorted({file for file, _ in functions})


def offline(directory: str) -> list[str]:
  """Returns the files that an Offline run executes, including its child."""
  env = install(directory)
  command = programs.command(
    'harness/offline',
    {
      'results_dir': os.path.join(directory, 'results'),
      'cache_dir': os.path.join(directory, 'cache'),
      'sample_count': 8,
      'min_duration': 1,
    },
    env,
  )
  subprocess.run(command.argv, env=dict(command.env), check=True)
  files = set()
  for path in pathlib.Path(env[recorder.OUT]).iterdir():
    name, windows = read(path)
    if re.search(r'/harness/[a-z_/]+\.py$', name):
      files |= {file for file, _ in windows.get(0, set())}
  return sorted(files)


TRACES = {GENERATE: generate, OFFLINE: offline}


def lines(files: Iterable[str]) -> Iterator[str]:
  """Yields a line for each folder: the folder and its modules."""
  folders: dict[str, list[str]] = {}
  for file in sorted(files):
    path = pathlib.PurePosixPath(file)
    folders.setdefault(str(path.parent), []).append(path.stem)
  for folder, modules in folders.items():
    yield f'{folder}: {" ".join(modules)}'


def main(argv: Sequence[str]) -> None:
  del argv
  for name, trace in TRACES.items():
    with tempfile.TemporaryDirectory(prefix='flow_') as directory:
      files = trace(directory)
    print(f'\n{name}: {len(files)} files')
    print('\n'.join(lines(files)))


if __name__ == '__main__':
  program.run(main)
