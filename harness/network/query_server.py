"""Serves a system of this process to a LoadGen that runs on another node.

A program that has a system for LoadGen's own process becomes a Network SUT with
one call:

    query_server.serve(MySystem, port=8500, name='gptj-a')

The system does not change. It is a `harness.loadgen.system.System` that
receives the indices of samples. Only its inputs have another source. Instead of
a list for the whole set, it gets `Inputs`, which has the arrays of the samples
that have arrived and are not yet answered. An index is never used twice.
No data of a sample is kept after its answer, as the rules of the Network
division require.

Connections are neither encrypted nor authenticated by default. Use the server
in a private network.
"""

import asyncio
from collections.abc import Callable
import itertools
import logging
import os
import signal
import socket
from typing import TypeAlias

import grpc

from harness.loadgen import system as system_lib
from harness.network import dispatch_pb2
from harness.network import dispatch_pb2_grpc
from harness.network import payload
from saxml_ext.common import errors
from saxml_ext.common import grpc_aio
from saxml_ext.common import grpc_util
from saxml_ext.common.security import tls

# The limit of unanswered samples of a stream. At the limit, the stream is not
# read, and gRPC's flow control stops the client. A set of GPT-J has 13368
# samples of up to 15 KiB.
_MOST_UNANSWERED = 16_384
_GRACE_SECS = 2.0
_SERVICE = dispatch_pb2.DESCRIPTOR.services_by_name['NetworkSut'].full_name


# The inputs of the samples that are not yet answered, by index. A system may read
# them from any thread until it has answered the sample.
Inputs: TypeAlias = dict[int, payload.Payload]
MakeSystem = Callable[[Inputs], system_lib.System]


def serve(make: MakeSystem, port: int, name: str, host: str = '[::]') -> None:
  """Serves until SIGTERM or SIGINT; blocks.

  Args:
    make: The function that makes the system, ready to answer. Its argument has
      the inputs to read.
    port: The port to listen on; 0: any free port.
    name: The model and the framework that compute, for LoadGen's log. Host and
      port are added, because the rules require a different name for every node.
    host: The interface to listen on. The default is all interfaces.

  Raises:
    ValueError: The name is empty.
    OSError: The port is already in use.
    Exception: The function `make` raised an error.
  """
  # Until the system is ready, a signal ends the program immediately. A load
  # takes minutes and cannot be interrupted in another way.
  signal.signal(signal.SIGINT, signal.SIG_DFL)
  unanswered = asyncio.run(_until_signal(make, port, name, host))
  if unanswered:
    print(f'Stopped with {unanswered} samples unanswered', flush=True)
    # Threads of the system still compute the samples. Python's ordinary exit
    # may then abort inside a library's native code.
    os._exit(0)


async def _until_signal(
  make: MakeSystem, port: int, name: str, host: str
) -> int:
  stop = asyncio.Event()

  def started(full_name: str, bound_port: int) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
      asyncio.get_running_loop().add_signal_handler(number, stop.set)
    _print_address(full_name, bound_port)

  return await run(make, port, name, stop, started, host)


def _print_address(name: str, port: int) -> None:
  how = 'with TLS' if tls.current().is_set else 'without encryption'
  print(
    f"{name} is ready, {how}. LoadGen's side needs --sut_server=<this"
    f' host>:{port}',
    flush=True,
  )


async def run(
  make: MakeSystem,
  port: int,
  name: str,
  stop: asyncio.Event,
  started: Callable[[str, int], None],
  host: str = '[::]',
) -> int:
  """Serves until `stop` is set.

  When the server is ready, `started` is called with its name and port. The
  other arguments and errors are those of `serve`.

  Returns:
    The number of samples that the system still computes although no client
    waits for them. If it is 0, the system has been closed.
  """
  if not name.strip():
    raise ValueError(
      "A Network SUT needs a name for LoadGen's log. Name the model and the"
      ' framework.'
    )
  server = grpc_aio.make_server()
  try:
    port = grpc_util.listen(server, port, host)
  except errors.FailedPrecondition as error:
    raise OSError(error.message) from error
  name = f'{name} on {socket.gethostname()}:{port}'
  inputs: Inputs = {}
  system = make(inputs)
  dispatch_pb2_grpc.add_NetworkSutServicer_to_server(
    _Service(system, inputs, name), server
  )
  health = grpc_aio.add_reflection_and_health(server, [_SERVICE])
  await server.start()
  started(name, port)
  await stop.wait()
  health.stop()
  await server.stop(_GRACE_SECS)
  unanswered = len(inputs)
  if not unanswered:
    system.close()
  return unanswered


class _Service(dispatch_pb2_grpc.NetworkSutServicer):
  """The gRPC service, which passes streams of samples to the system."""

  def __init__(self, system: system_lib.System, inputs: Inputs, name: str):
    self._system = system
    self._inputs = inputs
    self._name = name
    self._indices = itertools.count()

  @grpc_aio.method()
  async def Name(
    self, request: dispatch_pb2.NameRequest, context: grpc.aio.ServicerContext
  ) -> dispatch_pb2.NameReply:
    return dispatch_pb2.NameReply(name=self._name)

  @grpc_aio.method()
  async def Answer(
    self, requests: object, context: grpc.aio.ServicerContext
  ) -> None:
    stream = _Stream(context)
    try:
      async with asyncio.TaskGroup() as tasks:
        tasks.create_task(stream.write_outcomes())
        while (sample := await context.read()) is not grpc.aio.EOF:
          await stream.admit()
          self._begin(sample, stream)
        stream.end()
    except asyncio.CancelledError:
      logging.warning(
        'The stream from %s ended with %d samples unanswered. The system still'
        ' computes those that it has begun.',
        context.peer(),
        stream.unanswered,
      )
      raise

  def _begin(self, sample: dispatch_pb2.Sample, stream: '_Stream') -> None:
    """Passes a sample to the system."""
    try:
      arrays = payload.decode(sample.inputs)
    except ValueError as error:
      stream.put(dispatch_pb2.Outcome(id=sample.id, error=str(error)))
      return
    index = next(self._indices)
    self._inputs[index] = arrays
    reply = _Reply(sample.id, index, self._inputs, stream)
    try:
      self._system.answer(index, reply)
    except Exception as error:  # Any error ends the run.
      reply.failed(error)


class _Stream:
  """The unanswered samples of one client. Any thread may call `send`.

  Attributes:
    unanswered: The number of samples that have arrived and have no outcome yet.
  """

  def __init__(self, context: grpc.aio.ServicerContext):
    self._context = context
    self._loop = asyncio.get_running_loop()
    self._free = asyncio.Semaphore(_MOST_UNANSWERED)
    self._outcomes: asyncio.Queue[dispatch_pb2.Outcome | None] = asyncio.Queue()
    self.unanswered = 0
    self._ended = False

  async def admit(self) -> None:
    """Waits until one more sample may be unanswered, and counts it."""
    await self._free.acquire()
    self.unanswered += 1

  def end(self) -> None:
    """Marks the stream as complete: there will be no more samples."""
    self._ended = True
    if not self.unanswered:
      self._outcomes.put_nowait(None)

  def send(self, outcome: dispatch_pb2.Outcome) -> None:
    if self._loop.is_closed():
      return  # The server has stopped and ended all streams.
    self._loop.call_soon_threadsafe(self.put, outcome)

  def put(self, outcome: dispatch_pb2.Outcome) -> None:
    self._outcomes.put_nowait(outcome)
    if outcome.WhichOneof('news') == 'first_token':
      return
    self.unanswered -= 1
    self._free.release()
    if self._ended and not self.unanswered:
      self._outcomes.put_nowait(None)

  async def write_outcomes(self) -> None:
    """Sends outcomes until the last one."""
    while (outcome := await self._outcomes.get()) is not None:
      await self._context.write(outcome)


class _Reply:
  """Sends the outcome of one sample to its stream."""

  def __init__(
    self, sample_id: int, index: int, inputs: Inputs, stream: _Stream
  ):
    self._id = sample_id
    self._index = index
    self._inputs = inputs
    self._stream = stream

  def first_token(self, token: int | None = None) -> None:
    self._stream.send(dispatch_pb2.Outcome(id=self._id, first_token=True))

  def done(self, answer: system_lib.Answer) -> None:
    del self._inputs[self._index]
    self._stream.send(
      dispatch_pb2.Outcome(
        id=self._id,
        answer=dispatch_pb2.Answer(
          data=payload.encode_array('', answer.data), tokens=answer.tokens
        ),
      )
    )

  def failed(self, error: Exception) -> None:
    del self._inputs[self._index]
    self._stream.send(
      dispatch_pb2.Outcome(
        id=self._id, error=str(error) or type(error).__name__
      )
    )
