"""Whether a model has room beside those that are loaded: an estimate.

Known exactly before anything is read are the weights' sizes and those of the
state of all slots (keys, values and the searches). On top of that come what the
programs need while they run and one variable of the checkpoint at a time; a
part of the former stands for these.
"""

from collections.abc import Callable
from typing import TypeAlias

from absl import logging

from saxml_ext.common import errors
from saxml_ext.engine import executables
from saxml_ext.server import platforms
from saxml_ext.server.lifecycle import entry as entry_lib
from saxml_ext.server.lifecycle import lifecycle
from saxml_ext.server.loading import loader
from saxml_ext.server.loading import servable
from saxml_ext.server.random_weights import random_model
from saxml_ext.server.random_weights import room

_LoadFn: TypeAlias = lifecycle.LoadFn[servable.Servable]

# Of weights and state: the bundled model's prefill of 32 prompts needs less.
_MARGIN = 0.25
_GIB = 2**30


def least(spec: entry_lib.Spec) -> int:
  """Bytes of a model's weights and state on the devices of this process.

  Raises:
    errors.InvalidArgument, errors.Unimplemented: see `loader.plan`.
  """
  run = loader.plan(spec).executables()
  program = run.signature(executables.EmptyState())
  return room.size(program.args[0]) + room.size(program.results)


def checked(load_fn: _LoadFn) -> _LoadFn:
  """The same function, which refuses models that certainly have no room.

  Where memory is the host's, a model that is too large would otherwise end the
  server, and with it the models that it serves.

  Args:
    load_fn: loads models. From now on it raises errors.ResourceExhausted if
      there is no room now, which makes an admin server try again later, when
      others may have left; and errors.InvalidArgument if that would not help.
  """

  def load(
    spec: entry_lib.Spec, on_failure: Callable[[str], None]
  ) -> servable.Servable:
    wanted, free = least(spec), platforms.free_bytes()
    if wanted > free:
      raise _refusal(spec, wanted, free)
    return load_fn(spec, on_failure)

  return load


def _refusal(spec: entry_lib.Spec, wanted: int, free: int) -> errors.SaxError:
  is_random = random_model.is_meant(spec.checkpoint_path)
  remedies = [
    'fewer slots (BATCH_SIZE)',
    'narrower beams (BEAM_SIZE)',
    'shorter prompts and answers (INPUT_SEQ_LEN, MAX_DECODE_STEPS)',
  ]
  if is_random:
    remedies.append(room.SMALLER)
  text = (
    f'{spec.model_path} needs {wanted / _GIB:,.2f} GiB for weights and slots,'
    f' and of {platforms.all_bytes() / _GIB:,.2f} GiB here {free / _GIB:,.2f}'
    f' GiB are free: publish with {", ".join(remedies)}, or use a larger'
    ' machine or more devices (ICI_MESH_SHAPE)'
  )
  # Weights that are made up can be made smaller.
  if is_random or wanted > platforms.all_bytes():
    return errors.InvalidArgument(text)
  return errors.ResourceExhausted(f'{text}, or unload another model')


def beside(spec: entry_lib.Spec) -> bool:
  """Whether a model can be loaded while all others stay.

  Raises:
    errors.InvalidArgument, errors.Unimplemented: it cannot be loaded at all.
  """
  wanted = int(least(spec) * (1 + _MARGIN))
  free = platforms.free_bytes()
  logging.info(
    '%s needs about %.2f GiB, and %.2f GiB are free',
    spec.model_path,
    wanted / _GIB,
    free / _GIB,
  )
  return wanted <= free
