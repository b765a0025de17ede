"""Runs LoadGen once against the JAX engine, in one process.

With --network=sut, only the engine runs, and LoadGen is on another machine.
Loader, scheduler and engine are those of the model server. There is no gRPC, no
admin server and no conversion of ids to text.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent import futures
import dataclasses
import functools
import sys
import threading
from typing import Any

from absl import flags
from absl import logging
import numpy as np

from harness.benchmarks import all as benchmarks
from harness.benchmarks import benchmark as benchmark_lib
from harness.data import summarization
from harness.loadgen import run as run_lib
from harness.loadgen import runner
from harness.loadgen import settings as settings_lib
from harness.loadgen import system
from harness.network import client
from harness.network import network_program
from harness.network import payload
from harness.systems import launch
from saxml_ext.common import errors
from saxml_ext.common import program as program_lib
from saxml_ext.common import user_path
from saxml_ext.engine import config as config_lib
from saxml_ext.engine import request as request_lib
from saxml_ext.engine import runner as runner_lib
from saxml_ext.params import all_params  # noqa: F401 Registers them.
from saxml_ext.params import overrides as overrides_lib
from saxml_ext.params import registry
from saxml_ext.params import settings as params_lib
from saxml_ext.server import jax_setup
from saxml_ext.server.lifecycle import entry as entry_lib
from saxml_ext.server.loading import loader
from saxml_ext.server.loading import servable
from saxml_ext.server.programs import program_flags  # noqa: F401 Registers them.
from saxml_ext.server.programs import programs as programs_lib
from saxml_ext.server.scheduling import scheduler
from saxml_ext.server.services import prompts as prompts_lib
from saxml_ext.server.services import requests


def _is_first_token_certain(engine: config_lib.EngineConfig) -> bool:
  """Returns True if the first chosen token is always the answer's first token.

  With several beams or samples, the best one is known only at the end. With one
  beam, all hypotheses of a search begin with the same token, unless a
  hypothesis may end at once.
  """
  may_end_at_once = engine.search != 'sample' and engine.min_new_tokens < 1
  return engine.num_beams == 1 and not may_end_at_once


@dataclasses.dataclass(frozen=True, eq=False)
class _Request(request_lib.Request):
  """A request that reports its first token.

  Attributes:
    on_first_token: The function that is called once, on the thread that drives
      the engine.
  """

  on_first_token: Callable[[], None] = lambda: None


class _Runner:
  """An engine that reports first tokens; it accepts requests of this module.

  One call of the engine decodes several steps. A first token is reported at the
  end of the call that chooses it, because a client could not get it earlier.
  """

  def __init__(self, inner: runner_lib.Runner):
    self._inner = inner
    self.num_slots = inner.num_slots
    self._waiting: dict[int, _Request] = {}

  def check(self, request: _Request) -> None:
    self._inner.check(request)

  def prefill_and_insert(self, requests: Mapping[int, _Request]) -> None:
    self._inner.prefill_and_insert(requests)
    self._waiting.update(requests)

  def step(self, max_steps: int | None = None) -> dict[int, request_lib.Result]:
    results = self._inner.step(max_steps)
    for slot in self._waiting.keys() & (self._inner.decoding | results.keys()):
      self._waiting.pop(slot).on_first_token()
    return results

  @property
  def progress(self) -> Mapping[int, Any]:
    return self._inner.progress

  def interrupt(self) -> None:
    self._inner.interrupt()

  def release(self, slot: int) -> None:
    self._waiting.pop(slot, None)
    self._inner.release(slot)

  def score(self, prefix: np.ndarray, suffix: np.ndarray) -> float:
    return self._inner.score(prefix, suffix)


class EngineSystem:
  """Passes samples to the scheduler. Answers arrive on its thread."""

  def __init__(
    self,
    model: servable.Servable,
    inputs: network_program.Inputs,
    benchmark: benchmark_lib.Benchmark,
    stream: bool = False,
  ):
    """Stores the model and its inputs.

    Args:
      model: The model that `load` returned.
      inputs: The inputs by sample index. "input_ids" has the token ids of the
        prompt, int32 [T].
      benchmark: The benchmark, which decides what is logged.
      stream: True if the first token is reported with its id. The engine then
        decodes as few steps in a call as for streaming clients.
    """
    self._model = model
    self._inputs = inputs
    self._benchmark = benchmark
    self._stream = stream
    self._end_ids = model.settings.end_ids
    self._tells_first = _is_first_token_certain(model.settings.engine)

  def answer(self, index: int, reply: system.Reply) -> None:
    """Answers a sample; see `system.System`.

    Raises:
      errors.SaxError: The engine cannot answer the prompt.
    """
    request = _request(self._inputs[index]['input_ids'], self._model)
    if self._stream and self._tells_first:
      streamed = _Streamed(reply)
      future = self._model.scheduler.generate(
        dataclasses.replace(request, stream=True), on_progress=streamed.progress
      )
      future.add_done_callback(functools.partial(self._answered, streamed))
      streamed.ready.set()
      return
    if self._tells_first:
      request = dataclasses.replace(request, on_first_token=reply.first_token)
    future = self._model.scheduler.generate(request)
    future.add_done_callback(functools.partial(self._answered, reply))

  def close(self) -> None:
    self._model.close(drain=False)

  def _answered(self, reply: system.Reply, future: futures.Future) -> None:
    try:
      best = future.result().hypotheses[0]
    except Exception as error:  # Any error ends the run.
      reply.failed(error)
      return
    data = summarization.logged(
      best.tokens.tolist(), self._end_ids, self._benchmark
    )
    reply.done(system.Answer(data, len(data)))


class _Streamed:
  """A reply that gets the first token from the engine's progress.

  Attributes:
    ready: The event that the scheduler's thread will call `done`. The answer
      might otherwise arrive on another thread than the first token.
  """

  def __init__(self, reply: system.Reply):
    self._reply = reply
    self._reported = False
    self.ready = threading.Event()
    self.failed = reply.failed

  def progress(self, progress: request_lib.Progress) -> None:
    self.ready.wait()
    self._report(progress.rows[0].tokens)

  def first_token(self, token: int | None = None) -> None:
    self._reply.first_token(token)

  def done(self, answer: system.Answer) -> None:
    # An answer that ends in the engine's first call has no progress.
    self._report(answer.data)
    self._reply.done(answer)

  def _report(self, tokens: Sequence[int] | np.ndarray) -> None:
    if not self._reported and len(tokens):
      self._reported = True
      self.first_token(int(tokens[0]))


def load(
  spec: entry_lib.Spec, programs: programs_lib.Programs = programs_lib.NONE
) -> servable.Servable:
  """Loads a model as the model server does; takes seconds to minutes.

  Args:
    spec: The description of the model to load.
    programs: The programs that were compiled earlier. Missing ones are
      compiled.

  Raises:
    errors.SaxError: The params, overrides, checkpoint or programs are not
    usable.
  """
  ready = loader.prepare(spec, programs)
  settings, engine = ready.settings, ready.start()
  runner: scheduler.Runner = engine
  if _is_first_token_certain(settings.engine):
    runner = _Runner(engine)
  # The limit of the queue protects a server from its clients. Here, LoadGen's
  # --concurrency is the limit, and LoadGen would not retry a rejected request.
  settings = dataclasses.replace(settings, admission_limit=sys.maxsize)
  return servable.serve(settings, ready.codecs, runner, logging.error)


def _request(ids: np.ndarray, model: servable.Servable) -> _Request:
  """Converts a prompt without extra inputs to a request, as the server does."""
  settings = model.settings
  engine = settings.engine
  extra = settings.extra_inputs[scheduler.GENERATE]
  limit = requests.max_new_tokens(extra, engine) or engine.max_steps
  return _Request(
    tokens=prompts_lib.truncate(ids, model),
    max_new_tokens=limit,
    min_new_tokens=min(engine.min_new_tokens, limit),
    **requests.choices(extra, settings),
  )


def prompts(
  engine: launch.Engine, samples: run_lib.Samples
) -> list[payload.Payload]:
  """Returns the token ids of each article's prompt, int32 [T], as "input_ids".

  Raises:
    OSError, ValueError: A file or a setting cannot be used.
  """
  try:
    params = overrides_lib.apply(
      registry.lookup(engine.params), _overrides(engine)
    )
    settings = params_lib.Settings.from_params(params)
    longest = settings.engine.max_prompt - (settings.sos_id is not None)
    task = summarization.load_beside(
      _checkpoint(engine), longest, longest, samples
    )
  except errors.SaxError as error:
    raise ValueError(error.message) from error
  return [{'input_ids': ids} for ids in task.prompt_ids]


def make(
  engine: launch.Engine, inputs: network_program.Inputs, stream: bool = False
) -> system.System:
  """Loads the model.

  Args:
    engine: The settings.
    inputs: The inputs that `prompts` returned, or those from another machine.
    stream: True if the first tokens are reported; see `EngineSystem`.

  Raises:
    OSError, ValueError: A file or a setting cannot be used.
  """
  jax_setup.configure(engine.jax_cache_dir)
  try:
    jax_setup.check_devices()
    model = load(
      entry_lib.Spec(
        engine.params, _checkpoint(engine), _overrides(engine), acls={}
      ),
      programs_lib.Programs.open(
        [user_path.resolve(path) for path in engine.programs],
        engine.programs_mismatch,
        user_path.resolve(engine.programs_cache),
      ),
    )
  except errors.SaxError as error:
    raise ValueError(error.message) from error
  if scheduler.GENERATE not in model.settings.methods:
    model.close(drain=False)
    raise ValueError(
      f'{engine.params} generates nothing (SCORE_ONLY or ENABLE_GENERATE). Use'
      ' other --params'
    )
  return EngineSystem(model, inputs, benchmarks.get(engine.benchmark), stream)


def _checkpoint(engine: launch.Engine) -> str:
  path = (
    benchmarks.get(engine.benchmark).bundle.pax
    if engine.checkpoint is None
    else engine.checkpoint
  )
  if not path:
    raise ValueError(
      '--checkpoint is not set. Pass the directory of a PAX checkpoint, such'
      ' as `./bazelw run //converters:convert_gptj_ckpt` writes'
    )
  return loader.checkpoint_path(path)


def _overrides(engine: launch.Engine) -> dict[str, str]:
  return overrides_lib.from_flags(
    registry.lookup(engine.params),
    [f'{n}={text}' if text else n for n, text in engine.overrides.items()],
  )


def main(argv: Sequence[str]) -> None:
  if not flags.FLAGS['verbosity'].present:
    logging.set_verbosity(logging.INFO)  # A load may take minutes.
  run: run_lib.Run[launch.Engine]
  run = runner.requested_run(argv, launch.Engine, overrides=run_lib.overrides())
  engine = run.system
  benchmark = benchmarks.get(engine.benchmark)
  changes = ''.join(f' {n}={text}' for n, text in engine.overrides.items())
  network_program.main(
    lambda inputs: make(
      engine, inputs, settings_lib.reports_first_tokens(benchmark, run.scenario)
    ),
    lambda: prompts(engine, run.samples),
    f'{benchmark.title} by the JAX engine, {engine.params}{changes}',
    run,
  )


if __name__ == '__main__':
  run_lib.keep(
    run_lib.Run, run_lib.Samples, launch.Engine, client.Nodes, 'network'
  )
  program_lib.run(main, takes_words=True)
