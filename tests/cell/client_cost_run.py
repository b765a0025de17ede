"""Runs LoadGen once and measures the CPU time of this process.

A process can run LoadGen only once, see harness.loadgen.runner. Therefore
client_cost.py starts this program for each of its rows.
"""

from collections.abc import Callable, Sequence
import json
import os
import sys
import tempfile
import threading
import time
from typing import Any

from absl import flags
import grpc
import mlperf_loadgen
import numpy as np

from harness.benchmarks import gptj
from harness.loadgen import loadgen_log
from harness.loadgen import settings
from harness.loadgen import sut as sut_lib
from harness.loadgen import system
from harness.network import client as network_client
from harness.rules import rounds
from harness.systems import cell_run
from saxml_ext.common import grpc_util
from saxml_ext.common import program
from saxml_ext.evaluation import dataset
from saxml_ext.evaluation import tokenizer as tokenizer_lib
from saxml_ext.protobuf import lm_pb2
from saxml_ext.protobuf import lm_pb2_grpc
from tests.cell import instant_runner

LOADGEN = 'loadgen'
INSTANT = 'instant'
GRPC = 'grpc'
CELL = 'cell'
NETWORK = 'network'

_SYSTEM = flags.DEFINE_enum(
  'system',
  None,
  [LOADGEN, INSTANT, GRPC, CELL, NETWORK],
  'The system under test. loadgen: LoadGen is answered in its own call.',
  required=True,
)
_WHERE = flags.DEFINE_string(
  'where', '', 'The address of the server, or the root of the cell.'
)
_RATE = flags.DEFINE_float('rate', None, 'Samples per second.', required=True)
_SECONDS = flags.DEFINE_float('seconds', None, 'How long.', required=True)
_JSON = flags.DEFINE_string('json', None, 'Gets the figures.', required=True)

_TIMEOUT_SECS = 60.0
_CONCURRENCY = 1024
_WARM_UP = 200
_COPY = 100
_LATENCY_MS = 20_000


_ANSWER = system.Answer(
  np.arange(instant_runner.ANSWER_TOKENS), instant_runner.ANSWER_TOKENS
)


class _Instant:
  """A system that answers at once, on the thread of the caller."""

  def answer(self, index: int, reply: system.Reply) -> None:
    reply.done(_ANSWER)

  def close(self) -> None:
    """Does nothing, because nothing runs."""


class _Grpc:
  """A system that calls a bare server through a bare stub."""

  def __init__(self, address: str, prompts: Sequence[str]):
    channel = grpc_util.channel(address)
    self._generate = lm_pb2_grpc.LMServiceStub(channel).Generate
    self._prompts = prompts

  def answer(self, index: int, reply: system.Reply) -> None:
    request = lm_pb2.GenerateRequest(
      model_key='/sax/local/instant', text=self._prompts[index]
    )
    future = self._generate.future(request, timeout=_TIMEOUT_SECS)
    future.add_done_callback(lambda done: self._answered(done, reply))

  def _answered(self, done: grpc.Future, reply: system.Reply) -> None:
    try:
      done.result()
    except grpc.RpcError as error:
      reply.failed(error)
      return
    reply.done(_ANSWER)

  def close(self) -> None:
    """Does nothing, because the connection ends with the process."""


def _make(where: str) -> system.System:
  if _SYSTEM.value == INSTANT:
    return _Instant()
  ids = dataset.encode_prompts(
    dataset.load_articles(gptj.BUNDLE.dataset, _COPY),
    tokenizer_lib.load(gptj.BUNDLE.tokenizer),
    gptj.BUNDLE.max_input_length,
  )
  if _SYSTEM.value == NETWORK:
    return network_client.NetworkSystem(
      [where], [{'input_ids': row} for row in ids]
    )
  prompts = [','.join(map(str, row.tolist())) for row in ids]
  if _SYSTEM.value == GRPC:
    return _Grpc(where, prompts)
  return cell_run.CellSystem(
    cell_run.generator('/sax/local/instant', where, _TIMEOUT_SECS),
    prompts,
    end_ids=(),
    benchmark=gptj.GPTJ,
  )


def _answer_in_call(samples: Sequence[mlperf_loadgen.QuerySample]) -> None:
  data = _ANSWER.data
  mlperf_loadgen.QuerySamplesComplete(
    [
      mlperf_loadgen.QuerySampleResponse(
        sample.id, data.ctypes.data, data.nbytes
      )
      for sample in samples
    ]
  )


def _run(issue: Callable, flush: Callable[[], None], directory: str) -> float:
  """Runs LoadGen's Server scenario; returns the CPU seconds of this process."""
  run = settings.RunSettings(
    gptj.GPTJ,
    rounds.SERVER,
    gptj.GPTJ.last_round,
    _COPY,
    _COPY,
    int(1000 * _SECONDS.value),
    target_qps=_RATE.value,
    target_latency_ms=_LATENCY_MS,
  )
  path = os.path.join(directory, 'user.conf')
  with open(path, 'w', encoding='utf-8') as file:
    file.write(run.user_conf)
  test = settings.load(path, run.benchmark, run.scenario, run.attributes)
  test.mode = mlperf_loadgen.TestMode.PerformanceOnly
  log = mlperf_loadgen.LogSettings()
  log.enable_trace = False
  output = mlperf_loadgen.LogOutputSettings()
  output.outdir = directory
  output.copy_summary_to_stdout = False
  log.log_output = output
  library = mlperf_loadgen.ConstructQSL(
    _COPY, _COPY, lambda indices: None, lambda indices: None
  )
  handle = mlperf_loadgen.ConstructSUT(issue, flush)
  used = time.process_time()
  mlperf_loadgen.StartTestWithLogSettings(handle, library, test, log, '')
  return time.process_time() - used


def main(argv: Sequence[str]) -> None:
  del argv
  with tempfile.TemporaryDirectory(prefix='client_cost_') as directory:
    if _SYSTEM.value == LOADGEN:
      used = _run(_answer_in_call, lambda: None, directory)
    else:
      made = _make(_WHERE.value)
      # After the warm-up, connections exist, and the client knows the
      # addresses.
      system.warm_up(made, _COPY, [1, _WARM_UP], 0.0, _TIMEOUT_SECS)
      sut = sut_lib.SystemUnderTest(made, [1] * _COPY, _COPY, _CONCURRENCY)
      threading.Thread(target=_watch, args=(sut,), daemon=True).start()
      used = _run(sut.issue, sut.flush, directory)
    values: dict[str, Any] = {**loadgen_log.read(directory).values}
  figures = {
    'microseconds': 1e6 * used / values['result_query_count'],
    'samples_per_second': values['result_completed_samples_per_sec'],
  }
  with open(_JSON.value, 'w', encoding='utf-8') as file:
    json.dump(figures, file)


def _watch(sut: sut_lib.SystemUnderTest) -> None:
  """Ends the process after a failure, because LoadGen would wait forever."""
  while not sut.failure:
    time.sleep(1.0)
  print(sut.failure, file=sys.stderr, flush=True)
  os._exit(1)


if __name__ == '__main__':
  program.run(main)
