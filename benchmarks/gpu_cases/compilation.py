"""Compiles the programs that a measurement calls, several at a time."""

from collections.abc import Callable, Mapping
from concurrent import futures
import dataclasses
import os
import time
from typing import Any

import jax

from saxml_ext.engine import config as config_lib
from saxml_ext.engine import executables
from saxml_ext.engine import platform_configs
from saxml_ext.engine import preparation
from saxml_ext.engine import program_keys
from saxml_ext.engine import runner as runner_lib
from saxml_ext.engine import state
from saxml_ext.engine import weights as weights_lib

_NEEDED = (
  program_keys.Decode,
  program_keys.PrefillAndInsert,
  program_keys.PrefillPacked,
  program_keys.Hypotheses,
  program_keys.EmptyState,
)
# Tracing holds Python's lock, so more threads would not help.
_MOST_THREADS = 8


@dataclasses.dataclass(frozen=True)
class Programs:
  """Compiled programs.

  Attributes:
    programs: The programs by key.
    seconds: The time in which all of them were traced and compiled.
  """

  programs: Mapping[state.Key, Callable]
  seconds: float

  def runner(
    self,
    weights: weights_lib.Weights,
    model: config_lib.ModelConfig,
    engine: config_lib.EngineConfig,
  ) -> runner_lib.Runner:
    """Returns a runner that has loaded all these programs."""
    run = preparation.prepare(
      weights, model, engine, ready=lambda key, _: self.programs.get(key)
    )
    # Prompts share a call only if its program is loaded before.
    run.prepare(list(self.programs))
    return runner_lib.Runner.start(run)


def for_platform(engine: config_lib.EngineConfig) -> config_lib.EngineConfig:
  """Returns the settings as the model server adapts them to the device."""
  if jax.default_backend() == 'cpu':
    return platform_configs.on_cpu(engine)
  return platform_configs.on_gpu(engine)


def compile_programs(
  weights: weights_lib.Weights,
  model: config_lib.ModelConfig,
  engine: config_lib.EngineConfig,
  autotune: bool = False,
) -> Programs:
  """Compiles the programs for whole prompts and complete answers.

  Args:
    weights: The model, or its shapes.
    model: The sizes of the model.
    engine: The settings of the engine.
    autotune: True to let XLA try tilings on the GPU, which takes longer.
  """
  start = time.monotonic()
  run = executables.Executables(state.Settings(model, engine), weights)
  keys: list[state.Key] = [
    key for key in run.keys() if isinstance(key, _NEEDED)
  ]
  options: dict[str, Any] = {}
  if jax.default_backend() == 'gpu' and not autotune:
    options['xla_gpu_autotune_level'] = 0

  def compile_one(key: state.Key) -> Callable:
    return run.lower(key).compile(compiler_options=options or None)

  threads = min(_MOST_THREADS, len(os.sched_getaffinity(0)))
  with futures.ThreadPoolExecutor(threads) as pool:
    programs = dict(zip(keys, pool.map(compile_one, keys)))
  return Programs(programs, time.monotonic() - start)
