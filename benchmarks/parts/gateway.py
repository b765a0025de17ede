"""Measures the gateway's overhead per request and per token of a stream.

    ./bazelw run //saxml_ext/http:bench

The benchmark uses a test cell whose model answers at once. It alternates
between requests over gRPC and requests through the gateway. All processes run
on this machine.
"""

from collections.abc import Callable, Iterator, Sequence
import contextlib
import http.client
import json
import os
import re
import statistics
import subprocess
import sys
import time

from absl import flags
import psutil

from saxml_ext.common import grpc_util
from saxml_ext.common import program
from saxml_ext.protobuf import completion_pb2
from saxml_ext.protobuf import completion_pb2_grpc

_REQUESTS = flags.DEFINE_integer(
  'requests', 500, 'The number of requests of each kind.', lower_bound=1
)
_TOKENS = flags.DEFINE_integer(
  'tokens',
  64,
  'The number of tokens per answer.',
  lower_bound=2,
  upper_bound=1000,
)
# The ids of the test cell and its model.
_CELL, _MODEL = '/sax/test', '/sax/test/m'
_WARM_UP = 50
# The last bytes of a complete stream.
_DONE = b'data: [DONE]\n\n'

_Ask = Callable[[bool], int]


@contextlib.contextmanager
def _program(
  module: str, *arguments: str, **variables: str
) -> Iterator[tuple[psutil.Process, str]]:
  """Starts a program of this repository; yields it and its first output."""
  path = os.pathsep.join(filter(None, sys.path))
  environment = {**os.environ, 'SAX_DEBUG_IPADDR': '1', 'PYTHONPATH': path}
  with subprocess.Popen(
    [sys.executable, '-m', module, *arguments],
    env=environment | variables,
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    text=True,
  ) as process:
    assert process.stdout is not None
    try:
      yield psutil.Process(process.pid), process.stdout.readline().strip()
    finally:
      process.terminate()


def _direct(address: str, prompt: str) -> _Ask:
  """Returns a function that sends a request over gRPC and counts messages."""
  stub = completion_pb2_grpc.CompletionStub(grpc_util.channel(address))

  def ask(stream: bool) -> int:
    request = completion_pb2.CompleteRequest(
      model_key=_MODEL, text=prompt, stream=stream
    )
    return sum(1 for _ in stub.Complete(request))

  return ask


def _gateway(port: int, prompt: str) -> _Ask:
  """Returns a function that sends a request over HTTP and counts events."""
  connection = http.client.HTTPConnection('127.0.0.1', port)
  headers = {'content-type': 'application/json'}

  def ask(stream: bool) -> int:
    body = json.dumps({'model': 'm', 'prompt': prompt, 'stream': stream})
    connection.request('POST', '/v1/completions', body, headers)
    data = connection.getresponse().read()
    if stream and not data.endswith(_DONE):
      raise RuntimeError(f'the stream is incomplete: {data[-200:]!r}')
    return data.count(b'data: ') if stream else 1

  return ask


def _cpu(process: psutil.Process) -> float:
  times = process.cpu_times()
  return times.user + times.system


def _measure(
  direct: _Ask, gateway: _Ask, process: psutil.Process, stream: bool
) -> tuple[float, float, float]:
  """Returns the seconds (p50 of gRPC, p50 of HTTP, CPU time of the gateway)."""
  took: dict[_Ask, list[float]] = {direct: [], gateway: []}
  for _ in range(_WARM_UP):
    direct(stream)
    gateway(stream)
  before = _cpu(process)
  for _ in range(_REQUESTS.value):
    for ask, seconds in took.items():
      begin = time.perf_counter()
      ask(stream)
      seconds.append(time.perf_counter() - begin)
  cpu = (_cpu(process) - before) / _REQUESTS.value
  return (*map(statistics.median, took.values()), cpu)


def main(argv: Sequence[str]) -> None:
  """Runs the measurements and prints the table."""
  del argv
  prompt = 'x' * _TOKENS.value
  with contextlib.ExitStack() as stack:
    _, line = stack.enter_context(
      _program('saxml_ext.http.testing.fake_cell_program')
    )
    root, address = line.split()
    process, line = stack.enter_context(
      _program(
        'saxml_ext.http.gateway', '--port=0', SAX_ROOT=root, SAX_CELL=_CELL
      )
    )
    port = re.search(r':(\d+)$', line)
    if not port:
      sys.exit(f'bench: the gateway did not start: {line!r}')
    direct = _direct(address, prompt)
    gateway = _gateway(int(port.group(1)), prompt)
    whole = _measure(direct, gateway, process, stream=False)
    streamed = _measure(direct, gateway, process, stream=True)
  _print(whole, streamed)


def _print(
  whole: tuple[float, float, float], streamed: tuple[float, float, float]
) -> None:
  load = os.getloadavg()[0]
  print(
    f'{_REQUESTS.value} sequential requests of each kind, {_TOKENS.value}'
    f' tokens per answer, {os.cpu_count()} cores, load {load:.1f}'
  )
  print('                   gRPC p50   gateway p50   added   gateway CPU')
  for name, (direct, gateway, cpu) in (
    ('whole answer', whole),
    ('streamed answer', streamed),
  ):
    print(
      f'{name:16} {1e3 * direct:8.2f} ms {1e3 * gateway:9.2f} ms'
      f' {1e3 * (gateway - direct):6.2f} ms {1e3 * cpu:8.2f} ms'
    )
  per_token = (streamed[2] - whole[2]) / _TOKENS.value
  print(f'CPU of the gateway per streamed token: {1e6 * per_token:.0f} us')


if __name__ == '__main__':
  program.run(main)
