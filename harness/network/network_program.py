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
from typing import Any, Protocol

from absl import flags

from harness import errors
from harness.loadgen import run as run_lib
from harness.loadgen import run_flags
from harness.loadgen import runner
from harness.loadgen import system
from harness.network import client
from harness.network import payload
from harness.network import query_server
from saxml_ext.common import program
from saxml_ext.common.security import tls_flags  # noqa: F401 Registers flags.

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


def main(
  make: Callable[[Inputs], system.System],
  load: Callable[[], Sequence[payload.Payload]],
  name: str,
  run: run_lib.Run[Any] | None = None,
) -> None:
  """Does what --network says; ends the process with exit code 1 if it fails.

  Args:
    make: Makes the system, ready to answer.
    load: Reads the inputs of the set.
    name: What the system computes with, for LoadGen's log.
    run: What `runner.asked` returned; None: the run that the flags ask for.
  """
  network = run_flags.NETWORK.value
  if network == 'lon':
    runner.main(lambda: subject(run_flags.fill(client.Nodes), load()), run)
  elif network == 'sut':
    with program.exit_on('network SUT', text=errors.reason):
      query_server.serve(make, _PORT.value, _NODE.value or name, _HOST.value)
  else:
    runner.main(lambda: _local_subject(make, load()), run)


def subject(
  nodes: client.Nodes, payloads: Sequence[payload.Payload]
) -> runner.Subject:
  """Returns what a run over the network is about.

  Args:
    nodes: The nodes of the system.
    payloads: The inputs by sample index.

  Raises:
    ConnectionError: A node does not answer.
    ValueError: There is no node, or two have one name.
  """
  if not nodes.sut_server:
    raise ValueError(
      'no --sut_server is given; name every node of the Network SUT, such as'
      ' --sut_server=10.0.0.7:8000,10.0.0.8:8000'
    )
  made = client.NetworkSystem(nodes.sut_server, payloads, nodes.connections)
  return runner.Subject(made, payload.sizes(payloads), made.name)


def _local_subject(
  make: Callable[[Inputs], system.System], payloads: Sequence[payload.Payload]
) -> runner.Subject:
  return runner.Subject(make(payloads), payload.sizes(payloads))
