"""Compiles our engine's programs in another process, and caches them.

A compiler leaves 200 MB in its process. An engine that loads its programs, as a
server does, does not have this overhead.
"""

from concurrent import futures
import hashlib
import multiprocessing
import os
import time

from saxml_ext.aot import compile_set
from saxml_ext.aot import configuration
from saxml_ext.aot import manifest
from saxml_ext.aot import program_set
from saxml_ext.engine import abstract_weights
from saxml_ext.engine import config as config_lib
from saxml_ext.engine import executables
from saxml_ext.engine import state

_SERVING = manifest.Serving('benchmarks', {})


def kept(
  cache: str,
  model: config_lib.ModelConfig,
  engine: config_lib.EngineConfig,
  dtype: str,
  quantization: str | None,
) -> tuple[program_set.ProgramSet, float]:
  """Returns a set of all programs, compiled now unless `cache` has it.

  Args:
    cache: The directory of the sets. The name of a set depends on the inputs of
      its programs.
    model: The sizes of the model.
    engine: The settings of the engine.
    dtype: The dtype argument of `weights.from_pax`.
    quantization: The matrices that are int8.

  Returns:
    The set, and the seconds spent on compiling.
  """
  run = _executables(model, engine, dtype, quantization)
  here = configuration.from_executables(run, _SERVING)
  depends = f'{here} {os.environ.get("XLA_FLAGS")}'
  digest = hashlib.sha256(depends.encode()).hexdigest()
  path = os.path.join(cache, f'programs-{digest[:16]}')
  began = time.perf_counter()
  if not os.path.isdir(path):
    os.makedirs(cache, exist_ok=True)
    context = multiprocessing.get_context('spawn')
    with futures.ProcessPoolExecutor(1, context) as pool:
      pool.submit(_compile, path, model, engine, dtype, quantization).result()
  return program_set.ProgramSet.open(path), time.perf_counter() - began


def _executables(
  model: config_lib.ModelConfig,
  engine: config_lib.EngineConfig,
  dtype: str,
  quantization: str | None,
) -> executables.Executables:
  weights = abstract_weights.shapes(model, dtype, quantization)
  return executables.Executables(state.Settings(model, engine), weights)


def _compile(
  path: str,
  model: config_lib.ModelConfig,
  engine: config_lib.EngineConfig,
  dtype: str,
  quantization: str | None,
) -> None:
  run = _executables(model, engine, dtype, quantization)
  compile_set.compile_set(path, run, run.keys(), _SERVING, stablehlo=False)
