"""Compiles one program of a set for TPU, in a process that compiles no other.

XLA numbers the programs that a process compiles and writes the number into
them: only the first has the same bytes whatever is compiled beside it.
"""

from collections.abc import Mapping
import concurrent.futures
import dataclasses
import gzip
import multiprocessing
import resource

import jax

from saxml_ext.aot import abstract_model
from saxml_ext.aot import compile_set
from saxml_ext.aot import manifest as manifest_lib
from saxml_ext.aot.tpu import setup
from saxml_ext.aot.tpu import topologies
from saxml_ext.params import gptj  # noqa: F401 Registers or sets up.


@dataclasses.dataclass(frozen=True)
class Task:
  """What all programs of a set have in common.

  Attributes:
    params: name of the serving params.
    overrides: attribute of the params -> value as JSON.
    topology: name of the slice.
    with_xla_flags: whether XLA gets the params' XLA_TPU_FLAGS.
  """

  params: str
  overrides: Mapping[str, str]
  topology: str
  with_xla_flags: bool

  def model(self) -> abstract_model.AbstractModel:
    """What the programs are made of.

    Raises:
      errors.InvalidArgument, errors.Unimplemented: as `abstract_model.of`.
      RuntimeError: libtpu cannot be used.
    """
    setup.prepare()
    devices = topologies.find(self.topology).describe()
    return abstract_model.of(self.params, self.overrides, devices)

  def xla_flags(self, model: abstract_model.AbstractModel) -> Mapping[str, str]:
    """Options for XLA."""
    return model.xla_flags if self.with_xla_flags else {}


def processes(count: int) -> concurrent.futures.ProcessPoolExecutor:
  """Processes for `compile_program`, `count` at a time, a new one each time."""
  return concurrent.futures.ProcessPoolExecutor(
    count,
    # Not forked: JAX has threads by now, and libtpu may be loaded.
    mp_context=multiprocessing.get_context('spawn'),
    max_tasks_per_child=1,
  )


def compile_program(task: Task, name: str) -> tuple[compile_set.Built, int]:
  """Compiles a program.

  Args:
    task: of its set.
    name: str() of its key.

  Returns:
    The program with its files, and the most bytes of memory that this process
    had.

  Raises:
    errors.SaxError: as `compile_set.build`.
  """
  model = task.model()
  run = model.executables()
  (key,) = [key for key in run.keys() if str(key) == name]
  built = compile_set.build(
    run, key, task.xla_flags(model), stablehlo=True, more_files=optimized_hlo
  )
  return built, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def optimized_hlo(compiled: jax.stages.Compiled) -> dict[str, bytes]:
  """What XLA made of a program, as text; the estimates of speed read it."""
  # Without a time in its header the same text gives the same bytes.
  text = gzip.compress(compiled.as_text().encode(), mtime=0)
  return {manifest_lib.OPTIMIZED_HLO: text}
