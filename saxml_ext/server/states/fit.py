"""Whether a model has room beside those that are loaded: an estimate.

Known exactly before anything is read are the weights' sizes and those of the
state of all slots (keys, values and the searches). On top of that come what the
programs need while they run and one variable of the checkpoint at a time; a
part of the former stands for these.
"""

from absl import logging

from saxml_ext.engine import executables
from saxml_ext.server import platforms
from saxml_ext.server.loading import loader
from saxml_ext.server.loading import spec as spec_lib
from saxml_ext.server.random_weights import room

# Of weights and state: the bundled model's prefill of 32 prompts needs less.
_MARGIN = 0.25
_GIB = 2**30


def needed(spec: spec_lib.Spec) -> int:
  """Bytes that a model takes on the devices of this process, estimated.

  Raises:
    errors.InvalidArgument, errors.Unimplemented: see `loader.plan`.
  """
  run = loader.plan(spec).executables()
  program = run.signature(executables.EmptyState())
  total = room.size(program.args[0]) + room.size(program.results)
  return int(total * (1 + _MARGIN))


def beside(spec: spec_lib.Spec) -> bool:
  """Whether a model can be loaded while all others stay.

  Raises:
    errors.InvalidArgument, errors.Unimplemented: it cannot be loaded at all.
  """
  wanted, free = needed(spec), platforms.free_bytes()
  logging.info(
    '%s needs about %.2f GiB, and %.2f GiB are free',
    spec.model_path,
    wanted / _GIB,
    free / _GIB,
  )
  return wanted <= free
