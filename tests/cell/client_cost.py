"""Measures the CPU time per sample on the side of LoadGen.

  bazel run //tests/cell:client_cost

LoadGen's Server scenario sends samples at a constant rate. Each row adds one
part to the row that it is compared with. All processes are on this machine, so
the network is only loopback. If other work shares the machine, CPU time varies
less than latency, but caches are still shared. The rows are therefore measured
in turn, several times, and the smallest figure of each counts.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import json
import os
import sys
import tempfile

from absl import flags

from harness import errors as harness_errors
from saxml_ext.common import errors
from saxml_ext.common import net
from saxml_ext.common import program
from saxml_ext.common import user_path
from serve import children
from serve import local_cell
from serve import programs
from serve import progress as progress_lib
from tests.cell import instant_runner
from tests.cell import overhead

_RUN = 'tests/cell/client_cost_run'
_NETWORK_SUT = 'harness/network/testing/toy_sut'

_RATE = flags.DEFINE_float('rate', 300.0, 'Samples per second.', 1.0)
_SECONDS = flags.DEFINE_float(
  'seconds', 10.0, 'The duration of a run in seconds.', 1.0
)
_ROUNDS = flags.DEFINE_integer(
  'rounds', 3, 'The number of runs of each row.', 1
)
_JSON = flags.DEFINE_string('json', None, 'The JSON file for the figures.')

# This is one hundredth of a core at 300 samples per second.
_MOST_US = 33.0


@dataclasses.dataclass(frozen=True)
class Row:
  """A row of the table.

  Attributes:
    name: The name to print.
    system: The value of the program's --system.
    base: The system of the row that it is compared with; None for the first
      row.
  """

  name: str
  system: str
  base: str | None


ROWS = (
  Row('LoadGen alone', 'loadgen', None),
  Row('+ client, instant system', 'instant', 'loadgen'),
  Row('+ bare gRPC, a call a sample', 'grpc', 'instant'),
  Row('+ client of a Sax cell', 'cell', 'instant'),
  Row('+ Network SUT, a stream', 'network', 'instant'),
)


def measure(
  rate: float,
  seconds: float,
  rounds: int,
  log_dir: str,
  progress: progress_lib.Progress,
) -> dict[str, float]:
  """Measures the CPU microseconds per sample, by --system of `ROWS`.

  Raises:
    errors.HarnessError, SaxError: A process failed.
  """
  samples: dict[str, list[float]] = {row.system: [] for row in ROWS}
  with (
    tempfile.TemporaryDirectory(prefix='client_cost_') as work_dir,
    children.Children() as group,
  ):
    servers = _start_servers(group, work_dir, log_dir, progress)
    path = os.path.join(work_dir, 'figures.json')
    for number in range(rounds):
      for row in ROWS:
        progress.stage(f'round {number + 1} of {rounds}: {row.name}')
        command = programs.command(
          _RUN,
          {
            'system': row.system,
            'where': servers.get(row.system),
            'rate': rate,
            'seconds': seconds,
            'json': path,
          },
        )
        log = os.path.join(log_dir, f'run_{row.system}.log')
        group.run(f'LoadGen run {row.system}', command, log)
        with open(path, encoding='utf-8') as file:
          samples[row.system].append(json.load(file)['microseconds'])
  return {system: min(figures) for system, figures in samples.items()}


def _start_servers(
  group: children.Children,
  work_dir: str,
  log_dir: str,
  progress: progress_lib.Progress,
) -> dict[str, str]:
  """Starts the servers; returns the value of --where by --system."""
  answer = ','.join(['500'] * instant_runner.ANSWER_TOKENS)
  _, echo = overhead.start_echo(group, answer, log_dir)
  port = net.pick_free_port()
  sut = group.start(
    'Network SUT',
    programs.command(_NETWORK_SUT, {'network': 'sut', 'port': port}),
    os.path.join(log_dir, 'network_sut.log'),
  )
  overhead.wait_until_connected(sut, f'127.0.0.1:{port}')
  cell = local_cell.LocalCell(
    group, work_dir, log_dir, None, progress, server=overhead.INSTANT_SERVER
  )
  cell.start()
  cell.publish(
    local_cell.Model('instant', overhead.PARAMS, work_dir, overrides={})
  )
  return {
    'grpc': echo,
    'network': f'127.0.0.1:{port}',
    'cell': cell.sax_root,
  }


def render(figures: Mapping[str, float]) -> str:
  """Returns the figures as a table, with a line about the client's limit."""
  lines = []
  for row in ROWS:
    used = figures[row.system]
    line = f'{row.name:30} {used:6.1f} us a sample'
    if row.base:
      line += f', {used - figures[row.base]:+6.1f} us'
    lines.append(line)
  added = figures['instant'] - figures['loadgen']
  met = 'met' if added <= _MOST_US else 'MISSED'
  lines.append(f'client {added:.1f} us, at most {_MOST_US:g}: {met}')
  return '\n'.join(lines)


def main(argv: Sequence[str]) -> int:
  del argv
  progress = progress_lib.Progress()
  busy, cores = os.getloadavg()[0], os.cpu_count()
  progress.text(f'load average {busy:.1f} on {cores} cores before the start')
  try:
    with tempfile.TemporaryDirectory(prefix='client_cost_') as log_dir:
      figures = measure(
        _RATE.value, _SECONDS.value, _ROUNDS.value, log_dir, progress
      )
    progress.text(render(figures))
    if _JSON.value:
      path = user_path.resolve(_JSON.value)
      with open(path, 'w', encoding='utf-8') as file:
        json.dump({'load_average': busy, 'microseconds': figures}, file)
      progress.text(f'figures: {path}')
  except (
    errors.SaxError,
    harness_errors.HarnessError,
    OSError,
  ) as error:
    print(f'client_cost: {error}', file=sys.stderr, flush=True)
    return 1
  return 0


if __name__ == '__main__':
  program.run(main)
