"""LoadGen's side of a run over the network, by flags of its program."""

from collections.abc import Sequence

from absl import flags

from harness.loadgen import runner
from harness.network import client
from harness.network import payload

_SUT_SERVER = flags.DEFINE_list(
  'sut_server', [], '"host:port" of every node of the Network SUT.'
)
_CONNECTIONS = flags.DEFINE_integer(
  'connections', 1, 'Connections to each node of the Network SUT.', 1
)


def subject(payloads: Sequence[payload.Payload]) -> runner.Subject:
  """The system at --sut_server.

  Args:
    payloads: inputs by sample index.

  Raises:
    ConnectionError: a node does not answer.
    ValueError: the flag is wrong, or two nodes have one name.
  """
  if not _SUT_SERVER.value:
    raise ValueError(
      'no --sut_server is given; name every node of the Network SUT, such as'
      ' --sut_server=10.0.0.7:8000,10.0.0.8:8000'
    )
  system = client.NetworkSystem(_SUT_SERVER.value, payloads, _CONNECTIONS.value)
  return runner.Subject(system, payload.sizes(payloads), system.name)
