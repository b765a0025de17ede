"""Measures samples per second of a whole cell and of its engine alone.

The cell answers the harness's Offline runs. Each run is its own LoadGen
process, which uses gRPC. The engine has the same model and the same serving
params, and a bare loop in this process calls it. Both take turns with all
articles.
"""

from collections.abc import Sequence
import dataclasses
import os
import resource
import statistics
import tempfile
import time

import jax
import numpy as np

from harness.benchmarks import gptj
from harness.loadgen import run as run_lib
from harness.rules import rounds as rounds_lib
from harness.scenarios import job as job_lib
from harness.scenarios import load as load_lib
from harness.scenarios import scenario_run
from harness.scenarios import tasks
from harness.systems import launch
from saxml_ext.engine import request as request_lib
from saxml_ext.engine import runner as runner_lib
from saxml_ext.params import all_params  # noqa: F401 Registers them.
from saxml_ext.server.lifecycle import entry as entry_lib
from saxml_ext.server.loading import loader
from serve import children
from serve import local_cell
from serve import programs
from serve import progress as progress_lib
from tests.cell import cpu

CELL = 'cell'
ENGINE = 'engine'

_SILENCE_SECS = 300.0


@dataclasses.dataclass(frozen=True)
class Load:
  """The measurement to make.

  Attributes:
    params: The name of the serving params.
    rounds: The number of rounds, both systems in turn.
    samples: The number of bundled articles per round; 0 for all.
    concurrency: The limit of unanswered requests in the harness.
    jax_cache_dir: The directory for compiled programs; None for no cache.
  """

  params: str
  rounds: int
  samples: int
  concurrency: int
  jax_cache_dir: str | None


@dataclasses.dataclass(frozen=True)
class Round:
  """One pass over the articles.

  Attributes:
    samples: The number of answered samples.
    wall: The elapsed seconds; for the cell, those that LoadGen reports.
    cpu: The CPU seconds of the model server, or of the engine's process.
    harness_cpu: The CPU seconds of the LoadGen process, including its start; 0
      for the engine.
  """

  samples: int
  wall: float
  cpu: float
  harness_cpu: float = 0.0


@dataclasses.dataclass(frozen=True)
class Figures:
  """The figures of one system, as medians over the rounds.

  Attributes:
    samples_per_second: The rate by elapsed time.
    samples_per_cpu_second: The rate by CPU time of the model server, or of the
      engine's process.
    harness_cpu_ms: The CPU time of the LoadGen process per sample, including
      its start and tokenization.
    rounds: The number of rounds.
  """

  samples_per_second: float
  samples_per_cpu_second: float
  harness_cpu_ms: float
  rounds: int


def measure(
  prompts: Sequence[np.ndarray],
  load: Load,
  results_dir: str,
  progress: progress_lib.Progress,
) -> dict[str, Figures]:
  """Starts a cell, loads the engine without a cell, and runs both in turn.

  Args:
    prompts: The token ids of the articles, in the harness's order.
    load: The measurement to make.
    results_dir: The directory for LoadGen's logs and one log per process.
    progress: The display of the progress.

  Returns:
    The figures of `CELL` and `ENGINE`.

  Raises:
    errors.HarnessError: A process, the cell or a run failed.
    SaxError: The cell rejected a request.
  """
  with (
    tempfile.TemporaryDirectory(prefix='sax_bench_') as work_dir,
    children.Children() as group,
  ):
    log_dir = os.path.join(results_dir, 'logs')
    checkpoint = _checkpoint(group, work_dir, log_dir)
    cell = local_cell.LocalCell(
      group, work_dir, log_dir, load.jax_cache_dir, progress
    )
    cell.start()
    model_id = cell.publish(
      local_cell.Model('gptj', load.params, checkpoint, overrides={})
    )
    progress.stage('loading the same model here')
    engine = _engine(load, checkpoint)
    requests = [request_lib.Request(tokens) for tokens in prompts]
    _drive(engine, requests[: 2 * engine.num_slots])
    config = _config(
      load,
      launch.RunningCell(model_id, cell.sax_root, benchmark=gptj.GPTJ.name),
      results_dir,
      len(prompts),
    )
    rounds = {CELL: [], ENGINE: []}
    for i in range(load.rounds):
      progress.stage(f'round {i + 1} of {load.rounds}: engine')
      rounds[ENGINE].append(_drive(engine, requests))
      progress.stage(f'round {i + 1} of {load.rounds}: cell')
      rounds[CELL].append(_offline(config, cell.model_server, progress))
  return {name: _figures(runs) for name, runs in rounds.items()}


def _checkpoint(group: children.Children, work_dir: str, log_dir: str) -> str:
  """Returns the bundled model's checkpoint; converts it if necessary."""
  path = gptj.BUNDLE.pax
  if path is None:
    path = os.path.join(work_dir, 'pax')
    command = programs.command(
      programs.CONVERTER, {'base': gptj.BUNDLE.model, 'pax': path}
    )
    group.run('converter', command, os.path.join(log_dir, 'convert.log'))
  return path


def _engine(load: Load, checkpoint: str) -> runner_lib.Runner:
  if load.jax_cache_dir:
    jax.config.update('jax_compilation_cache_dir', load.jax_cache_dir)
    jax.config.update('jax_persistent_cache_min_compile_time_secs', 0.0)
    jax.config.update('jax_persistent_cache_min_entry_size_bytes', -1)
  spec = entry_lib.Spec(load.params, checkpoint, overrides={}, acls={})
  return loader.prepare(spec).start()


def _drive(
  engine: runner_lib.Runner, requests: Sequence[request_lib.Request]
) -> Round:
  """Answers all requests, sorted by length, with all slots always in use."""
  waiting = sorted(requests, key=lambda r: len(r.tokens), reverse=True)
  free = list(range(engine.num_slots))
  done = 0
  begin, used = time.perf_counter(), time.process_time()
  while done < len(requests):
    count = min(len(free), len(waiting))
    if count:
      engine.prefill_and_insert(
        {free.pop(): waiting.pop() for _ in range(count)}
      )
    finished = engine.step()
    free.extend(finished)
    done += len(finished)
  wall = time.perf_counter() - begin
  return Round(done, wall, time.process_time() - used)


def _config(
  load: Load, system: launch.RunningCell, results_dir: str, samples: int
) -> job_lib.Job:
  """Returns an Offline run over the articles, once each."""
  return job_lib.Job(
    model='gptj-99',
    modes=(run_lib.PERFORMANCE,),
    results_dir=results_dir,
    targets_path=None,
    system=system,
    task=tasks.SummaryTask(
      run_lib.Samples(
        gptj.BUNDLE.dataset,
        gptj.BUNDLE.tokenizer,
        gptj.BUNDLE.max_input_length,
        samples,
        gptj.GPTJ.name,
      ),
      'gptj-99',
    ),
    load=load_lib.Load(
      rounds_lib.OFFLINE,
      gptj.GPTJ.last_round,
      min_duration_ms=1,
      concurrency=load.concurrency,
      silence_secs=_SILENCE_SECS,
    ),
  )


def _offline(
  config: job_lib.Job,
  server: children.Child,
  progress: progress_lib.Progress,
) -> Round:
  harness, used = _ended_children_cpu(), cpu.seconds(server)
  [(_, outcome)] = scenario_run.run_jobs([config], progress)
  used = cpu.seconds(server) - used
  values = outcome.performance.values
  samples = config.task.sample_count
  return Round(
    samples=samples,
    wall=samples / float(values['result_samples_per_second']),
    cpu=used,
    harness_cpu=_ended_children_cpu() - harness,
  )


def _ended_children_cpu() -> float:
  usage = resource.getrusage(resource.RUSAGE_CHILDREN)
  return usage.ru_utime + usage.ru_stime


def _figures(rounds: Sequence[Round]) -> Figures:
  return Figures(
    samples_per_second=statistics.median(r.samples / r.wall for r in rounds),
    samples_per_cpu_second=statistics.median(r.samples / r.cpu for r in rounds),
    harness_cpu_ms=statistics.median(
      1e3 * r.harness_cpu / r.samples for r in rounds
    ),
    rounds=len(rounds),
  )
