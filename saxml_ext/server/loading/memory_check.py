"""Estimates the memory of a model and compares it with the free memory.

The sizes of the weights and of the state of all slots (keys, values and
searches) are known exactly before anything is read. The programs need more
memory while they run, and the load needs memory for one variable at a time. A
margin, a fraction of the known sizes, accounts for both.
"""

from collections.abc import Callable

from absl import logging

from saxml_ext.common import errors
from saxml_ext.engine import program_keys
from saxml_ext.server import platforms
from saxml_ext.server.lifecycle import entry as entry_lib
from saxml_ext.server.loading import loader
from saxml_ext.server.loading import random_model
from saxml_ext.server.loading import servable as servable_lib

# The fraction of weights and state. The bundled model's prefill of 32 prompts
# needs less.
_MARGIN = 0.25
_GIB = 2**30
_MIB = 2**20


class Loads:
  """Loads models that fit into memory, and plans each load once.

  On a host without accelerators, a model that is too large would end the server
  and all its models. Use this object on one thread.
  """

  def __init__(self, load_fn: Callable[..., servable_lib.Servable]):
    """Stores the function that loads, see `loader.load`."""
    self._load_fn = load_fn
    self._planned: loader.Plan | None = None

  def beside(self, spec: entry_lib.Spec) -> bool:
    """Returns True if a model can be loaded while all others stay.

    Raises:
      errors.InvalidArgument: The params, overrides or checkpoint are not
        usable.
      errors.Unimplemented: The engine does not support the params.
    """
    # The plan is kept for the load that follows.
    self._planned = loader.plan(spec)
    required = int(least(self._planned) * (1 + _MARGIN))
    free = platforms.free_bytes()
    logging.info(
      '%s needs about %.2f GiB, and %.2f GiB are free',
      spec.model_path,
      required / _GIB,
      free / _GIB,
    )
    return required <= free

  def load(
    self, spec: entry_lib.Spec, on_failure: Callable[[str], None]
  ) -> servable_lib.Servable:
    """Loads a model, unless it certainly does not fit into memory.

    Raises:
      errors.ResourceExhausted: There is not enough free memory now. An admin
        server then retries later, when other models may have been unloaded.
      errors.InvalidArgument: The model needs more memory than this host has.
      errors.SaxError: The load fails, see `loader.load`.
    """
    made, self._planned = self._planned, None
    if made is None or made.spec != spec:
      made = loader.plan(spec)
    weights, slots = _sizes(made)
    free = platforms.free_bytes()
    if weights + slots > free:
      raise _refusal(spec, weights + slots, free)
    count = made.engine.num_slots
    logging.info(
      '%s: of %.2f GiB free memory, weights take %.2f GiB and %d slots %.2f GiB'
      ' (%.1f MiB each)',
      spec.model_path,
      free / _GIB,
      weights / _GIB,
      count,
      slots / _GIB,
      slots / count / _MIB,
    )
    return self._load_fn(made, on_failure)


def least(made: loader.Plan) -> int:
  """Returns the bytes of a model's weights and state in this process."""
  return sum(_sizes(made))


def _sizes(made: loader.Plan) -> tuple[int, int]:
  """Returns the bytes of the weights, and of the state of all slots."""
  program = made.executables().signature(program_keys.EmptyState())
  return random_model.size(program.args[0]), random_model.size(program.results)


def _refusal(spec: entry_lib.Spec, required: int, free: int) -> errors.SaxError:
  is_random = random_model.is_meant(spec.checkpoint_path)
  remedies = [
    'fewer slots (BATCH_SIZE)',
    'narrower beams (BEAM_SIZE)',
    'shorter prompts and answers (INPUT_SEQ_LEN, MAX_DECODE_STEPS)',
  ]
  if is_random:
    remedies.append(random_model.SMALLER)
  text = (
    f'{spec.model_path} needs {required / _GIB:,.2f} GiB for weights and slots.'
    f' Of {platforms.all_bytes() / _GIB:,.2f} GiB here, {free / _GIB:,.2f} GiB'
    f' are free. Publish with {", ".join(remedies)}, or use a larger machine'
    ' or more devices (ICI_MESH_SHAPE)'
  )
  # The size of random weights can be reduced by overrides.
  if is_random or required > platforms.all_bytes():
    return errors.InvalidArgument(f'{text}.')
  return errors.ResourceExhausted(f'{text}, or unload another model.')
