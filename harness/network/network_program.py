"""One program for a system here, a system elsewhere, and that system itself.

A program of a system that computes in its own process calls `main` with how to
make the system and how to load the inputs of the set. It can then run

* LoadGen and the system in one process;
* --network=lon: LoadGen alone (LON: LoadGen over network), which has samples
  answered by the systems at --sut_server;
* --network=sut: the system alone, on --port.

The flags have the names that the MLPerf reference of BERT gave them.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from absl import flags

from harness import errors
from harness.loadgen import runner
from harness.loadgen import system
from harness.network import lon
from harness.network import payload
from harness.network import query_server
from saxml_ext.common import program
from saxml_ext.common.security import tls_flags  # noqa: F401 Registers flags.

_LON = 'lon'
_SUT = 'sut'

_NETWORK = flags.DEFINE_enum(
  'network',
  None,
  [_LON, _SUT],
  'lon: run LoadGen here against the systems at --sut_server; sut: be such a'
  ' system. Default: LoadGen and system in this process.',
)
_PORT = flags.DEFINE_integer(
  'port', 8000, 'Where --network=sut listens; 0: a free port.', 0, 65535
)
_HOST = flags.DEFINE_string(
  'host',
  '[::]',
  'Address of the interface where --network=sut listens. Default: all of them.',
)
_NODE = flags.DEFINE_string(
  'node',
  None,
  "Name of a --network=sut in LoadGen's log, before its host and port."
  ' Default: what it computes with.',
)


class Inputs(Protocol):
  """Inputs by sample index: a list of the set's, or `server.Inputs`."""

  def __getitem__(self, index: int, /) -> payload.Payload: ...


def mark_flags_as_required(names: Sequence[str]) -> None:
  """Like absl's, for programs of `main`.

  Args:
    names: what LoadGen's side needs besides the flags of its own.
  """
  for name in (*runner.REQUIRED_FLAGS, *names):
    flags.register_multi_flags_validator(
      [name, 'network'],
      lambda values, name=name: (
        values['network'] == _SUT or values[name] is not None
      ),
      f'--{name} must be given (except with --network=sut)',
    )


def main(
  make: Callable[[Inputs], system.System],
  load: Callable[[], Sequence[payload.Payload]],
  name: str,
) -> None:
  """Does what --network says; ends the process with exit code 1 if it fails.

  Args:
    make: makes the system, ready to answer.
    load: reads the inputs of the set.
    name: what the system computes with, for LoadGen's log.
  """
  if _NETWORK.value == _LON:
    runner.main(lambda: lon.subject(load()))
  elif _NETWORK.value == _SUT:
    with program.exit_on('network SUT', text=errors.reason):
      query_server.serve(make, _PORT.value, _NODE.value or name, _HOST.value)
  else:
    runner.main(lambda: _local_subject(make, load()))


def _local_subject(
  make: Callable[[Inputs], system.System], payloads: Sequence[payload.Payload]
) -> runner.Subject:
  return runner.Subject(make(payloads), payload.sizes(payloads))
