"""Runs LoadGen with a local or a remote system, or a system alone.

The program of a system that computes in its own process calls `main`. It passes
a function that makes the system and a function that loads the inputs of the
set. The program then has three modes:

* By default, LoadGen and the system run in one process.
* With --network=lon (LoadGen over network), LoadGen runs alone and sends
  samples to the systems at --sut_server.
* With --network=sut, the system runs alone and listens on --port.

The flags have the same names as in the MLPerf reference of BERT.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from absl import flags

from harness import errors
from harness.loadgen import run as run_lib
from harness.loadgen import runner
from harness.loadgen import system
from harness.network import client
from harness.network import payload
from harness.network import query_server
from saxml_ext.common import program
from saxml_ext.common.security import tls_flags  # noqa: F401 Registers flags.

_PORT = flags.DEFINE_integer(
  'port', 8000, 'The port of --network=sut. 0: a free port.', 0, 65535
)
_HOST = flags.DEFINE_string(
  'host',
  '[::]',
  'The address of the interface where --network=sut listens. Default: all.',
)
_NODE = flags.DEFINE_string(
  'node',
  None,
  "The name of --network=sut in LoadGen's log, before its host and port."
  ' Default: the framework of the system.',
)


class Inputs(Protocol):
  """Inputs by sample index: a list for the set, or `query_server.Inputs`."""

  def __getitem__(self, index: int, /) -> payload.Payload: ...


def main(
  make: Callable[[Inputs], system.System],
  load: Callable[[], Sequence[payload.Payload]],
  name: str,
  run: run_lib.Run[Any] | None = None,
) -> None:
  """Runs the mode of --network; ends the process with exit code 1 on failure.

  Args:
    make: The function that makes the system, ready to answer.
    load: The function that loads the inputs of the set.
    name: The model and the framework that compute, for LoadGen's log.
    run: The run that `runner.requested_run` returned; None: the run that the
      flags describe.
  """
  network = run_lib.NETWORK.value
  if network == 'lon':
    runner.main(lambda: subject(run_lib.fill(client.Nodes), load()), run)
  elif network == 'sut':
    with program.exit_on('network SUT', text=errors.reason):
      query_server.serve(make, _PORT.value, _NODE.value or name, _HOST.value)
  else:
    runner.main(lambda: _local_subject(make, load()), run)


def subject(
  nodes: client.Nodes, payloads: Sequence[payload.Payload]
) -> runner.Subject:
  """Returns the system and the samples of a run over the network.

  Args:
    nodes: The nodes of the system.
    payloads: The inputs by sample index.

  Raises:
    ConnectionError: A node does not answer.
    ValueError: There is no node, or two nodes have the same name.
  """
  if not nodes.sut_server:
    raise ValueError(
      '--sut_server is not set. Pass every node of the Network SUT, such as'
      ' --sut_server=10.0.0.7:8000,10.0.0.8:8000.'
    )
  made = client.NetworkSystem(nodes.sut_server, payloads, nodes.connections)
  return runner.Subject(made, payload.sizes(payloads), made.name)


def _local_subject(
  make: Callable[[Inputs], system.System], payloads: Sequence[payload.Payload]
) -> runner.Subject:
  return runner.Subject(make(payloads), payload.sizes(payloads))
