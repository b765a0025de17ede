"""Compiles one program of a set for TPU, in a process that compiles no other.

XLA numbers the programs that a process compiles and writes the number into
them: only the first has the same bytes whatever is compiled beside it.
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
  """The task that all programs of a set have in common.

  Attributes:
    params: The name of the serving params.
    overrides: The attributes of the params to override -> values as JSON.
    topology: The name of the slice.
    with_xla_flags: True if XLA gets the params' XLA_TPU_FLAGS.
  """

  params: str
  overrides: Mapping[str, str]
  topology: str
  with_xla_flags: bool

  def model(self) -> abstract_model.AbstractModel:
    """Returns the model that the programs are made of.

    Raises:
      errors.InvalidArgument, errors.Unimplemented: As in `abstract_model.of`.
      RuntimeError: libtpu cannot be used.
    """
    topologies.prepare()
    devices = topologies.find(self.topology).describe()
    return abstract_model.of(self.params, self.overrides, devices)

  def xla_flags(self, model: abstract_model.AbstractModel) -> Mapping[str, str]:
    """Returns the options for XLA."""
    return model.xla_flags if self.with_xla_flags else {}


def compile_program(task: Task, name: str) -> tuple[compile_set.Built, int]:
  """Compiles a program in a process of its own. Several threads may call it.

  Args:
    task: The task of its set.
    name: The str() of its key.

  Returns:
    The program with its files, and the most bytes of memory that the process
    had.

  Raises:
    errors.SaxError: As in `compile_set.build`; Internal if the process ends
      without an answer.
  """
  # Not forked: JAX has threads by now, and libtpu is loaded.
  context = multiprocessing.get_context('spawn')
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
      f'the process that was to compile {name!r} ended with exit code'
      f' {process.exitcode} and no answer; if it was killed for memory, give'
      ' --jobs=1'
    ) from e
  process.join()
  if isinstance(answer, errors.SaxError):
    raise answer
  return answer


def _answer(sender: connection.Connection, task: Task, name: str) -> None:
  """Sends what `compile_program` returns or raises."""
  try:
    model = task.model()
    run = model.executables()
    (key,) = [key for key in run.keys() if str(key) == name]
    flags = task.xla_flags(model)
    built = compile_set.build(run, key, flags, True, optimized_hlo)
    # Linux counts in KiB.
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    sender.send((built, peak))
  except errors.SaxError as e:
    sender.send(e)


def optimized_hlo(compiled: jax.stages.Compiled) -> dict[str, bytes]:
  """Returns what XLA made of a program, as text for the estimates of speed."""
  # Without a time in its header the same text gives the same bytes.
  text = gzip.compress(compiled.as_text().encode(), mtime=0)
  return {manifest_lib.OPTIMIZED_HLO: text}
