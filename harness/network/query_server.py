"""Serves a system of this process to a LoadGen that runs on another node.

A program that has a system for LoadGen's own process becomes a Network SUT by
one call:

    server.serve(lambda inputs: MySystem(inputs), port=8500, name='gptj-a')

The system stays what it is, `harness.loadgen.system.System`: it is asked for
samples by their index. Only its inputs come from somewhere else: instead of a
list of the whole set it gets `Inputs`, which has the arrays of those samples
that are here and not yet answered. An index is never used twice, and nothing
of a sample is kept after its answer, as the rules of the Network division ask.

Connections are neither encrypted nor authenticated: use it in a network of
your own.
"""

import asyncio
from collections.abc import Callable
import itertools
import logging
import os
import signal
import socket

import grpc

from harness.loadgen import system as system_lib
from harness.network import dispatch_pb2
from harness.network import dispatch_pb2_grpc
from harness.network import payload
from saxml_ext.common import errors
from saxml_ext.common import grpc_aio
from saxml_ext.common import grpc_util
from saxml_ext.common.security import tls

# Of one stream; then it is read no further, and gRPC's flow control holds the
# client back. A set of GPT-J has 13368 samples of up to 15 KiB.
_MOST_UNANSWERED = 16_384
_GRACE_SECS = 2.0
_SERVICE = dispatch_pb2.DESCRIPTOR.services_by_name['NetworkSut'].full_name


class Inputs:
  """Inputs of the samples that are here and not yet answered, by index.

  A system may read them from any thread until it has answered the sample.
  """

  def __init__(self) -> None:
    self._payloads: dict[int, payload.Payload] = {}

  def __getitem__(self, index: int) -> payload.Payload:
    return self._payloads[index]

  def __len__(self) -> int:
    return len(self._payloads)

  def add(self, index: int, arrays: payload.Payload) -> None:
    self._payloads[index] = arrays

  def drop(self, index: int) -> None:
    del self._payloads[index]


MakeSystem = Callable[[Inputs], system_lib.System]


def serve(make: MakeSystem, port: int, name: str, host: str = '[::]') -> None:
  """Serves until SIGTERM or SIGINT; blocks.

  Args:
    make: makes the system, ready to answer, of the inputs it shall read.
    port: to listen on; 0 picks a free one.
    name: what it computes with, for LoadGen's log. Host and port are added, as
      the rules want every node to have a name of its own.
    host: interface; the default is every one.

  Raises:
    ValueError: the name is empty.
    OSError: the port is taken.
    Exception: whatever `make` raises.
  """
  # Until the system is there, a signal ends the program as it is: a load that
  # takes minutes cannot be interrupted in another way.
  signal.signal(signal.SIGINT, signal.SIG_DFL)
  unanswered = asyncio.run(_until_signal(make, port, name, host))
  if unanswered:
    print(f'stopped with {unanswered} samples unanswered', flush=True)
    # Threads of the system still compute them, and Python's ordinary end may
    # abort in the midst of a library's native code.
    os._exit(0)


async def _until_signal(
  make: MakeSystem, port: int, name: str, host: str
) -> int:
  stop = asyncio.Event()

  def started(full_name: str, bound_port: int) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
      asyncio.get_running_loop().add_signal_handler(number, stop.set)
    _tell(full_name, bound_port)

  return await run(make, port, name, stop, started, host)


def _tell(name: str, port: int) -> None:
  how = 'by TLS' if tls.current().is_set else 'without encryption'
  print(
    f"{name} answers, {how}; give LoadGen's"
    f' side --sut_server=<this host>:{port}',
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
  """Serves until `stop` is set; `started` is told name and port.

  Other arguments and errors are those of `serve`.

  Returns:
    How many samples the system still computes, for nobody; 0: it is closed.
  """
  if not name.strip():
    raise ValueError(
      'a Network SUT needs a name, which LoadGen logs; say what it computes'
      ' with'
    )
  server = grpc_aio.make_server()
  try:
    port = grpc_util.listen(server, port, host)
  except errors.FailedPrecondition as error:
    raise OSError(error.message) from error
  name = f'{name} on {socket.gethostname()}:{port}'
  inputs = Inputs()
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
  """Streams of samples to the system."""

  def __init__(self, system: system_lib.System, inputs: Inputs, name: str):
    self._system = system
    self._inputs = inputs
    self._name = name
    self._indices = itertools.count()

  @grpc_aio.method()
  async def Name(
    self,
    request: dispatch_pb2.NameRequest,
    context: grpc.aio.ServicerContext,
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
        'the stream from %s ended with %d samples unanswered; what the system'
        ' has begun is computed for nobody',
        context.peer(),
        stream.unanswered,
      )
      raise

  def _begin(self, sample: dispatch_pb2.Sample, stream: '_Stream') -> None:
    """Hands a sample to the system."""
    try:
      arrays = payload.decode(sample.inputs)
    except ValueError as error:
      stream.put(dispatch_pb2.Outcome(id=sample.id, error=str(error)))
      return
    index = next(self._indices)
    self._inputs.add(index, arrays)
    reply = _Reply(sample.id, index, self._inputs, stream)
    try:
      self._system.answer(index, reply)
    except Exception as error:  # Any error ends the run.
      reply.failed(error)


class _Stream:
  """One client's samples on their way. `tell` is for any thread.

  Attributes:
    unanswered: samples that came and have no outcome yet.
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
    """There will be no more samples."""
    self._ended = True
    if not self.unanswered:
      self._outcomes.put_nowait(None)

  def tell(self, outcome: dispatch_pb2.Outcome) -> None:
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
    """Sends outcomes until the last."""
    while (outcome := await self._outcomes.get()) is not None:
      await self._context.write(outcome)


class _Reply:
  """Sends what becomes of one sample to the stream it came from."""

  def __init__(
    self, sample_id: int, index: int, inputs: Inputs, stream: _Stream
  ):
    self._id = sample_id
    self._index = index
    self._inputs = inputs
    self._stream = stream

  def first_token(self) -> None:
    self._stream.tell(dispatch_pb2.Outcome(id=self._id, first_token=True))

  def done(self, answer: system_lib.Answer) -> None:
    self._inputs.drop(self._index)
    self._stream.tell(
      dispatch_pb2.Outcome(
        id=self._id,
        answer=dispatch_pb2.Answer(
          data=payload.encode_array('', answer.data), tokens=answer.tokens
        ),
      )
    )

  def failed(self, error: Exception) -> None:
    self._inputs.drop(self._index)
    self._stream.tell(
      dispatch_pb2.Outcome(
        id=self._id, error=str(error) or type(error).__name__
      )
    )
