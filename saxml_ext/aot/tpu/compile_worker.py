"""Compiles one program of a set for TPU or GPU in a separate process.

XLA numbers the programs that a process compiles, and writes the numbers into
them. Only the first program of a process has reproducible bytes.
"""

from collections.abc import Mapping
import dataclasses
import gzip
import multiprocessing
from multiprocessing import connection
import resource

import jax

from saxml_ext.aot import abstract_model
from saxml_ext.aot import compile_set
from saxml_ext.aot import manifest as manifest_lib
from saxml_ext.aot.tpu import topologies
from saxml_ext.common import errors
from saxml_ext.params import all_params  # noqa: F401 Registers them.


@dataclasses.dataclass(frozen=True)
class Task:
  """The settings that all programs of a set have in common.

  Attributes:
    params: The name of the serving params.
    overrides: The overridden attributes of the params and their values as JSON.
    topology: The name of the slice or GPU.
    with_xla_flags: True if XLA receives the params' XLA_TPU_FLAGS.
  """

  params: str
  overrides: Mapping[str, str]
  topology: str
  with_xla_flags: bool

  def model(self) -> abstract_model.AbstractModel:
    """Returns the model that the programs are compiled for.

    Raises:
      errors.InvalidArgument: The params cannot be used; see
        `abstract_model.from_params`.
      errors.Unimplemented: The params ask for a feature that the engine lacks.
      RuntimeError: The compiler is unusable.
    """
    topologies.prepare()
    devices = topologies.find(self.topology).describe()
    return abstract_model.from_params(self.params, self.overrides, devices)

  def xla_flags(self, model: abstract_model.AbstractModel) -> Mapping[str, str]:
    """Returns the options for XLA."""
    return model.xla_flags if self.with_xla_flags else {}


def compile_program(task: Task, name: str) -> tuple[compile_set.Built, int]:
  """Compiles a program in a separate process. The function is thread-safe.

  Args:
    task: The settings of the set.
    name: The str() of the program's key.

  Returns:
    The program with its files, and the peak memory of the process in bytes.

  Raises:
    errors.SaxError: The program does not compile, see `compile_set.build`. The
      error is Internal if the process ends without an answer.
  """
  # Forking is unsafe here, because JAX has started threads and libtpu is
  # loaded.
  context = multiprocessing.get_context('spawn')
  # The recursion of libtpu can exceed 64 MiB of stack, for prefill of
  # 1,024 tokens of Llama 3.1 8B on v6e.
  most = resource.getrlimit(resource.RLIMIT_STACK)[1]
  resource.setrlimit(resource.RLIMIT_STACK, (most, most))
  receiver, sender = context.Pipe(duplex=False)
  process = context.Process(
    target=_answer, args=(sender, task, name), daemon=True
  )
  process.start()
  sender.close()
  try:
    answer = receiver.recv()
  except EOFError as e:
    process.join()
    raise errors.Internal(
      f'the process that compiled {name!r} ended with exit code'
      f' {process.exitcode} and without a result. If it ran out of memory, use'
      ' --jobs=1. If it wrote STACK OVERFLOW, raise the limit of "ulimit -Hs".'
    ) from e
  process.join()
  if isinstance(answer, errors.SaxError):
    raise answer
  return answer


def _answer(sender: connection.Connection, task: Task, name: str) -> None:
  """Compiles a program, and sends the result or the error to the parent."""
  try:
    model = task.model()
    run = model.executables()
    (key,) = [key for key in run.keys() if str(key) == name]
    flags = task.xla_flags(model)
    built = compile_set.build(run, key, flags, True, optimized_hlo)
    # Linux reports this value in KiB.
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    sender.send((built, peak))
  except errors.SaxError as e:
    sender.send(e)


def optimized_hlo(compiled: jax.stages.Compiled) -> dict[str, bytes]:
  """Returns the optimized program as text, for estimates of its speed."""
  # Without a time in the header, the same text gives the same bytes.
  text = gzip.compress(compiled.as_text().encode(), mtime=0)
  return {manifest_lib.OPTIMIZED_HLO: text}
