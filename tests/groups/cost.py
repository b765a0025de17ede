"""Measures the overhead of a group per call of the engine.

Three setups with two devices each run at the same time and get calls in turn:

* one process with both devices;
* a group of two processes that both make the calls themselves: the cost of
splitting a model among processes;
* a group driven by the log of its process 0, as in a model server: the cost of
the log.
"""

from collections.abc import Mapping, Sequence
import contextlib
import dataclasses
import json
import os
import statistics
import subprocess

from saxml_ext.common import net
from serve import programs

ALONE = 'one process'
COPIES = 'two processes'
LOG = 'driven by the log'
CALLS = ('prefill_and_insert', 'step', 'release')

_PROCESS = 'tests/groups/cost_process'
_DEVICES = 2
_PARAMS = 'saxml_ext.params.gptj.TinyTokenizedFP32'
# With few programs, the compilation is fast.
_OVERRIDES = {
  'BATCH_SIZE': '2',
  'INPUT_SEQ_LEN': '192',
  'BUCKET_KEYS': '[192]',
}


@dataclasses.dataclass(frozen=True)
class Load:
  """The size of the measurement.

  Attributes:
    turns: The number of turns of each setup.
    rounds: The number of rounds of calls per turn: a prefill, four steps, a
      release.
    mesh: The mesh of the model, [replica, data, model].
  """

  turns: int
  rounds: int
  mesh: Sequence[int] = (1, 1, _DEVICES)


# The seconds of each call, by the name of the call and the setup.
Seconds = Mapping[str, Mapping[str, Sequence[float]]]


def percentile(values: Sequence[float], percent: int) -> float:
  """Returns a percentile of at least two values."""
  return statistics.quantiles(values, n=100, method='inclusive')[percent - 1]


def measure(checkpoint: str, load: Load, log_dir: str, cache: str) -> Seconds:
  """Starts all three setups and calls them in turn.

  Args:
    checkpoint: The PAX checkpoint of the bundled model.
    load: The size of the measurement.
    log_dir: The directory for the logs, one per process.
    cache: The directory for compiled programs.

  Returns:
    The seconds of each call, by the name of the call and the setup.

  Raises:
    RuntimeError: A process failed.
  """
  with contextlib.ExitStack() as stack:
    # The setups start one after another, so that they share compiled programs.
    setups = {
      name: stack.enter_context(_SetUp(name, checkpoint, load, log_dir, cache))
      for name in (ALONE, COPIES, LOG)
    }
    seconds: dict[str, dict[str, list[float]]] = {
      call: {name: [] for name in setups} for call in CALLS
    }
    for _ in range(load.turns):
      for name, setup in setups.items():
        for call, values in setup.ask(load.rounds).items():
          seconds[call][name] += values
  return seconds


class _SetUp:
  """The processes of one setup, which end with the context."""

  def __init__(
    self,
    name: str,
    checkpoint: str,
    load: Load,
    log_dir: str,
    cache: str,
  ):
    """Starts the processes; returns when they are ready."""
    count = 1 if name == ALONE else _DEVICES
    overrides = _OVERRIDES | {'ICI_MESH_SHAPE': json.dumps(load.mesh)}
    flags = {
      'checkpoint': checkpoint,
      'params': _PARAMS,
      'overrides': json.dumps(overrides),
      'jax_cache_dir': cache,
      'num_processes': count,
      'log': str(name == LOG).lower(),
    }
    if count > 1:
      flags['coordinator'] = f'127.0.0.1:{net.pick_free_port()}'
    env = {
      'JAX_PLATFORMS': 'cpu',
      'JAX_NUM_CPU_DEVICES': str(_DEVICES // count),
    }
    self._name = name
    self._log_dir = log_dir
    self._all = [
      self._start(
        programs.command(_PROCESS, flags | {'process_id': process}, env),
        os.path.join(log_dir, f'{name.replace(" ", "_")}_{process}.log'),
      )
      for process in range(count)
    ]
    # Followers of the log give no answers.
    self._callees = self._all[:1] if name == LOG else self._all
    for process in self._callees:
      self._read(process)

  def __enter__(self) -> '_SetUp':
    return self

  def __exit__(self, *unused) -> None:
    for process in self._all:
      process.kill()
      process.communicate()

  def ask(self, rounds: int) -> dict[str, list[float]]:
    """Returns the seconds of each call in process 0, by name."""
    for process in self._callees:
      assert process.stdin is not None
      process.stdin.write(f'{rounds}\n')
      process.stdin.flush()
    return [self._read(process) for process in self._callees][0]

  def _start(
    self, command: programs.Command, log: str
  ) -> subprocess.Popen[str]:
    with open(log, 'wb') as stderr:
      return subprocess.Popen(
        command.argv,
        env=dict(command.env),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
      )

  def _read(self, process: subprocess.Popen[str]) -> dict[str, list[float]]:
    assert process.stdout is not None
    for line in process.stdout:
      if line.startswith('{'):
        return json.loads(line)
    raise RuntimeError(
      f'{self._name}: a process ended with {process.wait()}; see the logs in'
      f' {self._log_dir}'
    )
