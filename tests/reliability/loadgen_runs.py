"""Tests LoadGen runs whose cell fails: they must end soon, with the reason."""

from collections.abc import Sequence
import dataclasses
import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile
import time

from harness.benchmarks import gptj
from tests.chaos import processes
from tests.reliability import served as served_lib
from tests.reliability.results import figures

_PROGRAM = 'harness.offline'
_STEP_SECS = 0.05
_SAMPLES = 64
_WITHIN_SECS = 30.0
# Whether a lost server will return is unknown, so a run ends after this
# silence.
_SILENCE_SECS = 10.0


@dataclasses.dataclass(frozen=True)
class _Ended:
  """The end of a run.

  Attributes:
    code: The exit code of the program.
    output: The output of the program.
    at: The monotonic time of the end.
    left: The remaining files that call the run valid.
  """

  code: int
  output: str
  at: float
  left: Sequence[str]


def _start(served: served_lib.Served, directory: str) -> subprocess.Popen[str]:
  """Starts the harness as users do, for a running cell."""
  spec = importlib.util.find_spec(_PROGRAM)
  if spec is None or spec.origin is None:
    raise ValueError(f'there is no module {_PROGRAM}')
  return subprocess.Popen(
    [
      sys.executable,
      spec.origin,
      f'--sax_root={served.cell.root}',
      f'--model_path={served_lib.MODEL}',
      f'--tokenizer_path={gptj.BUNDLE.tokenizer}',
      '--max_input_length=512',
      f'--cache_dir={directory}/cache',
      f'--silence_secs={_SILENCE_SECS}',
      '--mode=performance',
      f'--sample_count={_SAMPLES}',
      '--min_duration=600000',
      '--target_qps=100',
    ],
    env={**os.environ, 'PYTHONPATH': os.pathsep.join(sys.path)},
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    text=True,
  )


def _end(run: subprocess.Popen[str], directory: str) -> _Ended:
  try:
    output, _ = run.communicate(timeout=processes.PATIENCE)
  except subprocess.TimeoutExpired:
    run.kill()
    output, _ = run.communicate()
  results = pathlib.Path(directory, 'cache', 'results')
  left = [str(path) for path in results.rglob('result.json')]
  return _Ended(run.returncode, output, time.monotonic(), left)


def _figures(
  name: str, ended: _Ended, failed: float, reason: str, strict: bool
) -> list[figures.Figure]:
  is_reported = reason in ended.output
  if not is_reported:
    print(ended.output[-2000:])
  return [
    figures.Figure(f'{name}: exit code', ended.code, most=1, least=1),
    figures.all_of(f'{name}: told the reason', int(is_reported), 1),
    figures.none_of(f'{name}: results kept as if it was valid', ended.left),
    figures.Figure(
      f'{name}: ended after',
      ended.at - failed,
      's',
      most=_WITHIN_SECS if strict else None,
    ),
  ]


def measure(directory: str, strict: bool = True) -> list[figures.Figure]:
  """Returns the figures of the table's row.

  Args:
    directory: An empty directory.
    strict: True to count times, and to test a killed server too; False if the
      machine may be too busy for them.
  """
  results = []
  for name, fail, reason in (
    ('engine fails', True, 'this engine was made to fail'),
    ('server killed', False, 'The model server is gone'),
  )[: None if strict else 1]:
    path = tempfile.mkdtemp(dir=directory)
    notes = pathlib.Path(path) / 'notes'
    flags = [f'--step_secs={_STEP_SECS}', f'--notes={notes}']
    if fail:
      flags.append('--fail_after=40')
    with served_lib.start(path, flags) as served:
      run = _start(served, path)
      failed = _wait(served, run, notes, fail)
      ended = _end(run, path)
      if failed is None:
        raise RuntimeError(f'the run ended by itself: {ended.output}')
    results += _figures(name, ended, failed, reason, strict)
  return results


def _wait(
  served: served_lib.Served,
  run: subprocess.Popen[str],
  notes: pathlib.Path,
  fails: bool,
) -> float | None:
  """Waits until the engine fails, or kills its server.

  Returns:
    The time of the failure; None if the run ended before.
  """

  def reached(text: str, count: int) -> bool:
    return run.poll() is not None or notes.read_text().count(text) >= count

  processes.wait(lambda: reached(' admit ', 40))
  if fails:
    processes.wait(lambda: reached(' fail', 1))
    return _moment(notes)
  if run.poll() is not None:
    return None
  served.servers[0].kill()
  return time.monotonic()


def _moment(notes: pathlib.Path) -> float | None:
  """Returns the time at which the engine failed; None if it did not."""
  for line in notes.read_text().splitlines():
    at, what = line.split(' ', 1)
    if what == 'fail':
      return float(at)
  return None
