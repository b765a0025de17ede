"""Implements the worker's side: receives commands, runs an engine, measures.

Standard input has one JSON object per line, {"command": name, ...}. Standard
output has one per line, {"value": ...} or {"error": text}. The worker ends at
the end of its input.
"""

from collections.abc import Sequence
import ctypes
import dataclasses
import json
import os
import resource
import signal
import sys
import time
import traceback
from typing import Any, Protocol, TypedDict

from benchmarks import workload

_PR_SET_PDEATHSIG = 1  # <sys/prctl.h>


@dataclasses.dataclass(frozen=True)
class Job:
  """The job of a worker.

  Attributes:
    model: The Hugging Face directory.
    cache: The directory for files that are derived from the model.
    dtype: The number format: "float32", "bfloat16" or "int8".
    threads: The number of threads that compute.
    beams: The number of beams; 1 is greedy search.
    slots: The number of requests decoded together, if the engine has such a
      setting.
    eos: The token that ends an answer.
    requests: The requests of the job; a run takes the first of them.
    counts: The numbers of requests of the runs, ascending.
    trial_new_tokens: The limit of an answer in trials of settings; None for the
      default of the trials.
    llama_cpp: The directory of the built llama-cpp-python, or None.
  """

  model: str
  cache: str
  dtype: str
  threads: int
  beams: int
  slots: int
  eos: int
  requests: tuple[workload.Request, ...]
  counts: tuple[int, ...]
  trial_new_tokens: int | None = None
  llama_cpp: str | None = None


class NBest(TypedDict):
  """All beams of a search, the best first.

  tokens has K lists of n tokens, without the end-of-sequence token. scores has
  K sums of log-probabilities, divided by the number of tokens.
  """

  tokens: list[list[int]]
  scores: list[float]


class Engine(Protocol):
  """The engine of a worker; additional public methods are further commands.

  Attributes:
    kv: The type of keys and values after `load`, a key of models.BYTES.
  """

  kv: str

  def convert(self, job: Job) -> None:
    """Converts the model to the engine's own format, if it has one."""

  def load(self, job: Job) -> None:
    """Loads the model."""

  def prepare(self) -> str:
    """Compiles, warms up and chooses batches; returns a text on the choices."""

  def generate(self, requests: Sequence[workload.Request]) -> list[list[int]]:
    """Returns the best answer to each request, without its end token."""


def serve(engine: Engine) -> None:
  """Answers commands until standard input ends."""
  if sys.platform == 'linux':
    # The kernel kills the workers whenever the benchmark ends.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
  answers = os.fdopen(os.dup(1), 'w', buffering=1)
  # Libraries print to standard output, which is reserved for answers.
  os.dup2(2, 1)
  commands = _Commands(engine)
  for line in sys.stdin:
    message = json.loads(line)
    try:
      value = commands.call(message.pop('command'), message)
      answer = {'value': value}
    except Exception as error:  # pylint: disable=broad-except
      # The benchmark gets the error and handles it.
      traceback.print_exc()
      answer = {'error': f'{type(error).__name__}: {error}'}
    answers.write(json.dumps(answer) + '\n')


class _Commands:
  """The commands that every worker supports."""

  def __init__(self, engine: Engine):
    self._engine = engine
    self._requests: tuple[workload.Request, ...] = ()

  def call(self, name: str, arguments: dict) -> Any:
    if name in ('load', 'run'):
      return getattr(self, name)(**arguments)
    return getattr(self._engine, name)(**arguments)

  def load(self, job: dict) -> dict:
    """Loads and prepares the engine; returns the seconds of each part."""
    self._requests = workload.from_json(job['requests'])
    todo = Job(
      **{
        **job,
        'requests': self._requests,
        'counts': tuple(job['counts']),
      }
    )
    self._engine.convert(todo)
    began = time.perf_counter()
    self._engine.load(todo)
    loaded = time.perf_counter()
    note = self._engine.prepare()
    prepared = time.perf_counter()
    return {
      'load_seconds': loaded - began,
      'compile_seconds': prepared - loaded,
      'kv': self._engine.kv,
      'note': note,
    }

  def run(self, count: int) -> dict:
    """Answers the first `count` requests and returns the measurements."""
    requests = self._requests[:count]
    cpu, wall = time.process_time(), time.perf_counter()
    answers = self._engine.generate(requests)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    for request, answer in zip(requests, answers, strict=True):
      if request.exact and len(answer) != request.max_new:
        raise RuntimeError(
          f'an answer has {len(answer)} tokens; {request.max_new} asked for.'
        )
    return {
      'cpu_seconds': cpu,
      'wall_seconds': wall,
      'answers': answers,
      'peak_rss_bytes': resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
      * 1024,
    }
