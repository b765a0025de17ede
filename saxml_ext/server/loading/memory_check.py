"""Whether a model has room beside those that are loaded: an estimate.

Known exactly before anything is read are the weights' sizes and those of the
state of all slots (keys, values and the searches). On top of that come what the
programs need while they run and one variable of the checkpoint at a time; a
part of the former stands for these.
"""

from collections.abc import Callable

from absl import logging

from saxml_ext.common import errors
from saxml_ext.engine import executables
from saxml_ext.server import platforms
from saxml_ext.server.lifecycle import entry as entry_lib
from saxml_ext.server.loading import loader
from saxml_ext.server.loading import random_model
from saxml_ext.server.loading import servable as servable_lib

# Of weights and state: the bundled model's prefill of 32 prompts needs less.
_MARGIN = 0.25
_GIB = 2**30


class Loads:
  """Loads models that have room, and plans each load once.

  Where memory is the host's, a model that is too large would otherwise end the
  server, and with it the models that it serves. Use it on one thread.
  """

  def __init__(self, load_fn: Callable[..., servable_lib.Servable]):
    """Takes the function that loads, see `loader.load`."""
    self._load_fn = load_fn
    self._planned: loader.Plan | None = None

  def beside(self, spec: entry_lib.Spec) -> bool:
    """Returns True if a model can be loaded while all others stay.

    Raises:
      errors.InvalidArgument, errors.Unimplemented: it cannot be loaded at all.
    """
    # The load follows, so that it finds the plan.
    self._planned = loader.plan(spec)
    wanted = int(least(self._planned) * (1 + _MARGIN))
    free = platforms.free_bytes()
    logging.info(
      '%s needs about %.2f GiB, and %.2f GiB are free',
      spec.model_path,
      wanted / _GIB,
      free / _GIB,
    )
    return wanted <= free

  def load(
    self, spec: entry_lib.Spec, on_failure: Callable[[str], None]
  ) -> servable_lib.Servable:
    """Loads a model unless it certainly has no room.

    Raises:
      errors.ResourceExhausted: there is no room now, which makes an admin
        server try again later, when others may have left.
      errors.InvalidArgument: the model has no room here at all.
      errors.SaxError: as `loader.load`.
    """
    made, self._planned = self._planned, None
    if made is None or made.spec != spec:
      made = loader.plan(spec)
    wanted, free = least(made), platforms.free_bytes()
    if wanted > free:
      raise _refusal(spec, wanted, free)
    return self._load_fn(made, on_failure)


def least(made: loader.Plan) -> int:
  """Returns the bytes of a model's weights and state in this process."""
  run = made.executables()
  program = run.signature(executables.EmptyState())
  return random_model.size(program.args[0]) + random_model.size(program.results)


def _refusal(spec: entry_lib.Spec, wanted: int, free: int) -> errors.SaxError:
  is_random = random_model.is_meant(spec.checkpoint_path)
  remedies = [
    'fewer slots (BATCH_SIZE)',
    'narrower beams (BEAM_SIZE)',
    'shorter prompts and answers (INPUT_SEQ_LEN, MAX_DECODE_STEPS)',
  ]
  if is_random:
    remedies.append(random_model.SMALLER)
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
