"""Runs test modules, each in a process of its own.

  run_tests.py MODULE_test.py... -- ARGUMENT...

Most tests take less time than the imports of JAX, PyTorch and the like. This
program imports these packages once, and then forks a process for each module.
It imports only packages that start neither a thread nor a backend.

Imports create many objects, and so does JAX while it traces a program. Python's
garbage collector would take a quarter of the time of the imports and a sixth of
that of a test. So it is off during the imports, and runs rarely in the modules.
"""

from collections.abc import Iterable, Sequence
import contextlib
import dataclasses
import gc
import importlib
import os
import pathlib
import re
import runpy
import shutil
import signal
import sys
import tempfile
import time
from xml.etree import ElementTree

_ROOT = pathlib.Path(__file__).parents[2]
# gRPC is not here, because it reads its log level when it is imported, and
# programs set that first.
_SLOW = (
  'absl',
  'jax',
  'ml_dtypes',
  'nltk',
  'numpy',
  'openai',
  'orbax',
  'prometheus_client',
  'scipy',
  'tensorstore',
  'torch',
  'transformers',
)
# An import in a function is not at the start of a line. It may never run.
_IMPORT = re.compile(r'^(?:from ([\w.]+) )?import (\w[\w.]*)', re.MULTILINE)
# transformers imports the modules of a model when its class is used.
_LAZY = re.compile(r'\b(transformers\.[A-Z]\w*)')
_SHARDING = ('TEST_SHARD_INDEX', 'TEST_TOTAL_SHARDS', 'TEST_SHARD_STATUS_FILE')


@dataclasses.dataclass(frozen=True)
class Result:
  """The outcome of a module.

  Attributes:
    failure: The reason why the module failed, or an empty string.
    tests: The number of tests that ran.
    skipped: The number of skipped tests.
    seconds: The CPU time of the module and its children.
    report: The module's report as an XML element.
  """

  failure: str
  tests: int
  skipped: int
  seconds: float
  report: ElementTree.Element


def slow_imports(modules: Iterable[pathlib.Path]) -> list[str]:
  """Returns what modules, and those that they import, use of slow packages."""
  todo, seen, slow = list(modules), set(), set()
  while todo:
    path = todo.pop()
    if path in seen or not path.is_file():
      continue
    seen.add(path)
    text = path.read_text('utf-8')
    names = [f'{a}.{b}' if a else b for a, b in _IMPORT.findall(text)]
    for name in names:
      if name.split('.')[0] in _SLOW:
        slow.add(name)
      else:
        todo.append(_ROOT / f'{name.replace(".", "/")}.py')
    if 'transformers' in names:
      slow.update(_LAZY.findall(text))
  return sorted(slow)


def _preload(name: str) -> None:
  """Imports a module, or the module of an attribute."""
  package, _, attribute = name.rpartition('.')
  # The module that needs a missing package reports it.
  with contextlib.suppress(ImportError):
    if package:
      getattr(importlib.import_module(package), attribute, None)
    importlib.import_module(name)


def _become(path: pathlib.Path, folder: str, arguments: Sequence[str]) -> None:
  """Runs a module as the program of this process."""
  signal.signal(signal.SIGTERM, signal.SIG_DFL)
  os.environ['TEST_TMPDIR'] = folder
  sys.argv = [
    str(path),
    f'--test_tmpdir={folder}',
    f'--xml_output_file={folder}.xml',
    *arguments,
  ]
  runpy.run_path(str(path), run_name='__main__')


def _wait(process: int) -> tuple[int, float]:
  """Returns the exit code of a process and its seconds of CPU time.

  Ends the processes that it left behind.
  """
  try:
    _, status, usage = os.wait4(process, 0)
    return os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime
  except SystemExit:
    # absl has the process print its stacks.
    os.kill(process, signal.SIGABRT)
    os.waitpid(process, 0)
    raise
  finally:
    with contextlib.suppress(ProcessLookupError):
      os.killpg(process, signal.SIGKILL)


def _result(
  name: str, code: int, seconds: float, report: pathlib.Path
) -> Result:
  try:
    root = ElementTree.parse(report).getroot()
  except (FileNotFoundError, ElementTree.ParseError):
    root = ElementTree.Element('testsuites')
  cases = list(root.iter('testcase'))
  skipped = sum(case.get('status') == 'notrun' for case in cases)
  failure = ''
  if code < 0:
    failure = f'ended by {signal.Signals(-code).name}'
  elif code:
    failure = f'exited with {code}'
  elif not cases and not os.environ.get('TESTBRIDGE_TEST_ONLY'):
    failure = 'ran no test'
  if failure:
    suite = ElementTree.SubElement(root, 'testsuite', name=name)
    case = ElementTree.SubElement(suite, 'testcase', name=name)
    ElementTree.SubElement(case, 'error', message=failure)
  return Result(failure, len(cases) - skipped, skipped, seconds, root)


def _run(name: str, arguments: Sequence[str], scratch: str) -> Result:
  folder = os.path.join(scratch, name.replace('/', '.'))
  os.mkdir(folder)
  sys.stdout.flush()
  sys.stderr.flush()
  process = os.fork()
  if not process:
    os.setpgid(0, 0)
    _become(_ROOT / name, folder, arguments)
    os._exit(0)  # The module did not call absltest.main.
  with contextlib.suppress(PermissionError, ProcessLookupError):
    os.setpgid(process, process)
  code, seconds = _wait(process)
  shutil.rmtree(folder, ignore_errors=True)
  return _result(name, code, seconds, pathlib.Path(f'{folder}.xml'))


def _print(name: str, result: Result, elapsed: float) -> None:
  """Prints the line of a module; .ci/run reads it."""
  status = 'passed' if result.tests else 'skipped'
  text = f'{result.tests} tests ran, {result.skipped} skipped'
  if result.failure:
    status, text = 'failed', result.failure
  times = f'{elapsed:.1f} s, {result.seconds:.1f} s of CPU time'
  print(f'[   MODULE ] {name} {status}: {text} ({times})', flush=True)


def _shard(modules: Sequence[str]) -> Sequence[str]:
  """Returns the modules of this shard, if Bazel divides the target.

  absl divides the methods of a single module.
  """
  if 'TEST_TOTAL_SHARDS' not in os.environ or len(modules) == 1:
    return modules
  index, total, file = (os.environ.pop(name) for name in _SHARDING)
  pathlib.Path(file).touch()
  return modules[int(index) :: int(total)]


def main(argv: Sequence[str]) -> int:
  """Runs modules and returns 0 if all passed or were skipped."""
  split = argv.index('--') if '--' in argv else len(argv)
  if not split:
    print(
      'run_tests: no module is named. Run tests with `bazel test`, or name'
      ' the path of a module.',
      file=sys.stderr,
    )
    return 2
  modules, arguments = _shard(argv[:split]), argv[split + 1 :]
  signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
  gc.disable()
  for name in slow_imports(_ROOT / module for module in modules):
    _preload(name)
  gc.freeze()  # The processes share this memory.
  gc.set_threshold(50_000, 20, 50)
  gc.enable()
  failed = []
  report = ElementTree.Element('testsuites')
  scratch = tempfile.mkdtemp(dir=os.environ.get('TEST_TMPDIR'))
  for name in modules:
    start = time.monotonic()
    result = _run(name, arguments, scratch)
    _print(name, result, time.monotonic() - start)
    report.extend(result.report)
    if result.failure:
      failed.append(name)
  if 'XML_OUTPUT_FILE' in os.environ:
    ElementTree.ElementTree(report).write(os.environ['XML_OUTPUT_FILE'])
  for name in failed:
    label = name.removesuffix('.py').rpartition('/')
    print(f'Failed: bazel test //{label[0]}:{label[2]}')
  return bool(failed)


if __name__ == '__main__':
  sys.exit(main(sys.argv[1:]))
