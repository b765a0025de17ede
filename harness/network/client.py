"""Implements LoadGen's side of a Network SUT: the query dispatch library (QDL).

It only dispatches, as the rules of the Network division require. Every sample
is sent alone and complete as soon as LoadGen's client issues it. It goes to the
node with the fewest unanswered samples. Answers are forwarded when they arrive.
"""

from collections.abc import Iterable, Mapping, Sequence
import itertools
import queue
import threading

import grpc
import msgspec

from harness.loadgen import system
from harness.network import dispatch_pb2
from harness.network import dispatch_pb2_grpc
from harness.network import payload
from harness.rules import requirements
from saxml_ext.common import grpc_util

_NAME_SECS = 10.0


class Nodes(  # type: ignore[call-arg]
  msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag='network'
):
  """The nodes of a system.

  Attributes:
    sut_server: The address "host:port" of every node.
    connections: The number of connections to each node.
  """

  sut_server: Sequence[str]
  connections: int = 1


def join(nodes: Mapping[str, str]) -> str:
  """Returns one name for all nodes, which LoadGen logs for the system.

  Args:
    nodes: The name of every node by its address.

  Raises:
    ValueError: There is no node, or two nodes have the same name.
  """
  if not nodes:
    raise ValueError('The Network SUT has no node. Pass at least one address.')
  seen: dict[str, str] = {}
  for address, name in nodes.items():
    if name in seen:
      raise ValueError(
        f'The nodes {seen[name]} and {address} have the same name {name!r},'
        ' but the rules require unique names. Start one of them with another'
        ' name.'
      )
    seen[name] = address
  return f'{requirements.NETWORK_SUT}: {", ".join(seen)}'


class SutError(Exception):
  """Raised if a node of the system could not answer; has the cause."""


class NetworkSystem:
  """Sends samples to a system on other nodes."""

  def __init__(
    self,
    addresses: Sequence[str],
    payloads: Sequence[payload.Payload],
    connections: int = 1,
  ):
    """Connects to all nodes and requests their names.

    Args:
      addresses: The address "host:port" of every node.
      payloads: The inputs by sample index.
      connections: The number of connections to each node.

    Raises:
      ConnectionError: A node does not answer.
      ValueError: There is no node, an address is given twice, or two nodes have
        the same name.
    """
    if len(set(addresses)) != len(addresses):
      raise ValueError(
        f'nodes {", ".join(addresses)}: An address occurs twice. Pass each'
        ' node once.'
      )
    self._payloads = payloads
    self._lock = threading.Lock()
    self._connections = [
      _Connection(address) for _ in range(connections) for address in addresses
    ]
    self._nodes = self._connections[: len(addresses)]
    self.name()

  def name(self) -> str:
    """Requests the name of every node over the network and joins the names.

    Raises:
      ConnectionError: A node does not answer.
      ValueError: There is no node, or two nodes have the same name.
    """
    return join({node.address: node.name() for node in self._nodes})

  def answer(self, index: int, reply: system.Reply) -> None:
    tensors = payload.encode(self._payloads[index])
    with self._lock:
      connection = min(self._connections, key=_Connection.load)
      connection.send(tensors, reply)

  def close(self) -> None:
    for connection in self._connections:
      connection.close()


class _Connection:
  """One stream of samples on its own connection."""

  def __init__(self, address: str):
    self.address = address
    self._channel = grpc_util.channel(
      address,
      # By default, gRPC shares one connection between channels to the same
      # address.
      (('grpc.use_local_subchannel_pool', 1),),
    )
    self._stub = dispatch_pb2_grpc.NetworkSutStub(self._channel)
    self._ids = itertools.count()
    self._samples: queue.SimpleQueue[dispatch_pb2.Sample | None] = (
      queue.SimpleQueue()
    )
    self._lock = threading.Lock()
    self._open: dict[int, system.Reply] = {}
    self._broken: SutError | None = None
    self._call: grpc.Call | None = None
    self._reader: threading.Thread | None = None

  def load(self) -> int:
    """Returns the number of samples that are sent and not yet answered."""
    return len(self._open)

  def name(self) -> str:
    try:
      reply = self._stub.Name(dispatch_pb2.NameRequest(), timeout=_NAME_SECS)
    except grpc.RpcError as error:
      raise ConnectionError(
        f'No Network SUT answers at {self.address} ({_text(error)}). Start it'
        ' there and wait until it is ready, or correct the address.'
      ) from error
    return reply.name

  def send(
    self, tensors: Sequence[dispatch_pb2.Tensor], reply: system.Reply
  ) -> None:
    """Sends a sample.

    Raises:
      SutError: The connection is broken.
    """
    sample = dispatch_pb2.Sample(id=next(self._ids), inputs=tensors)
    with self._lock:
      if self._broken:
        raise self._broken
      self._open[sample.id] = reply
    if self._reader is None:
      self._call = self._stub.Answer(iter(self._samples.get, None))
      self._reader = threading.Thread(
        target=self._read,
        args=(self._call,),
        name=f'answers of {self.address}',
        daemon=True,
      )
      self._reader.start()
    self._samples.put(sample)

  def close(self) -> None:
    self._samples.put(None)
    if self._call and self._reader:
      if self._open:
        self._call.cancel()
      self._reader.join()
    self._channel.close()

  def _read(self, outcomes: Iterable[dispatch_pb2.Outcome]) -> None:
    """Forwards outcomes until the stream ends."""
    reason = 'the stream ended'
    try:
      for outcome in outcomes:
        self._hand_on(outcome)
    except grpc.RpcError as error:
      reason = _text(error)
    self._break(reason)

  def _hand_on(self, outcome: dispatch_pb2.Outcome) -> None:
    kind = outcome.WhichOneof('news')
    if kind == 'first_token':
      self._open[outcome.id].first_token()
      return
    reply = self._open.pop(outcome.id)
    if kind == 'error':
      reply.failed(SutError(f'{self.address} failed: {outcome.error}'))
      return
    try:
      data = payload.decode_array(outcome.answer.data)
    except ValueError as error:
      reply.failed(SutError(f'{self.address} sent an invalid answer: {error}'))
      return
    reply.done(system.Answer(data, outcome.answer.tokens))

  def _break(self, reason: str) -> None:
    """Fails the unanswered samples and all later ones."""
    with self._lock:
      unanswered: Mapping[int, system.Reply] = dict(self._open)
      self._broken = SutError(
        f'The Network SUT at {self.address} disconnected with'
        f' {len(unanswered)} samples unanswered ({reason}). Check its output,'
        ' start it again, and repeat the run.'
      )
      self._open.clear()
    for reply in unanswered.values():
      reply.failed(self._broken)


def _text(error: grpc.RpcError) -> str:
  """Returns the code and the details of a failed call."""
  return f'{error.code().name}: {error.details()}'
