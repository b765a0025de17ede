"""Lets paxml 1.4.0 import, save and restore with a current orbax, no TensorFlow.

Call `install` before the first import of paxml; it does for praxis what
`praxis_compat` does, too. Checkpoints are written and read by paxml's own code
in paxml's own layouts. What is put back:

- paxml's step names lack a method that orbax has come to ask of them;
- orbax has moved the hooks through which paxml's checkpoint handler gives the
  directory of a variable its name. Without them a plain checkpoint is written
  without complaint, but to `state/0`, `state/1`, ..., and none is found;
- its experiments import makers of training data, which are TensorFlow's;
- in the plain layout orbax now adds its own metadata about these numbers, which
  older versions of it would go by;
- there it reads a lost file as zeros.

Importing paxml takes seconds and some 300 MB: import this module late.
"""

import importlib.util
import sys
import types
from typing import Any

import jax
import orbax.checkpoint as ocp

from saxml_ext.pax.compat import praxis_compat

_SUMMARIES = 'clu.metric_writers.summary_writer'
_TRAINING_DATA = 'paxml.tasks.lm.input_generator'


def install() -> None:
  """Puts back what paxml misses; calling it again changes nothing.

  Raises:
    RuntimeError: praxis was imported before the first call; see `praxis_compat`.
  """
  praxis_compat.install()
  if importlib.util.find_spec('tensorflow') is None:
    _stand_in_for_summaries()
    # Modules that use it name what it has when they are asked for data only.
    sys.modules.setdefault(_TRAINING_DATA, types.ModuleType(_TRAINING_DATA))
  from paxml import checkpoints

  if not hasattr(checkpoints.PaxCheckpointHandler, '_names_are_asked_for'):
    _name_steps()
    _name_variables()


def _stand_in_for_summaries() -> None:
  """clu imports its writer of TensorBoard files, which nothing here writes."""
  if _SUMMARIES not in sys.modules:
    module = types.ModuleType(_SUMMARIES)
    # Type checkers know no such attribute.
    setattr(module, 'SummaryWriter', type('SummaryWriter', (), {}))  # noqa: B010
    sys.modules[_SUMMARIES] = module


def _name_steps() -> None:
  """Adds `find_step`: as find_metadata, but a missing step is an error."""
  from paxml import checkpoint_paths

  def find_step(self: Any, base_path: Any, step: int) -> ocp.step.Metadata:
    found = self.find_metadata(base_path, step)
    if found is None:
      raise ValueError(
        f'{base_path} has no step {step}: give one of its checkpoint_<step>'
      )
    return found

  name_format = checkpoint_paths.PaxStepNameFormat
  name_format.find_step = find_step
  name_format.__abstractmethods__ -= {'find_step'}


def _name_variables() -> None:
  """Makes orbax ask the handler for names again, on saving and restoring."""
  from paxml import checkpoints

  handler = checkpoints.PaxCheckpointHandler
  make = handler.__init__

  def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
    make(self, *args, **kwargs)
    own = self._handler_impl
    default = own.get_param_names
    own.get_param_names = lambda item: (
      default(item) if self._param_names is None else self._param_names
    )
    if not self._use_ocdbt:
      own._write_metadata_file = _write_nothing

  async def _maybe_deserialize(
    self: Any, item: Any, metadata: Any, param_infos: Any, restore_args: Any
  ) -> Any:
    # paxml's own put the names in here, which is done by now; orbax has since
    # given it another parameter.
    strict = jax.tree.map(
      lambda info: (
        info
        if info.is_ocdbt_checkpoint
        else info.replace(raise_array_data_missing_error=True)
      ),
      param_infos,
    )
    return await super(handler, self)._maybe_deserialize(
      item, metadata, strict, restore_args
    )

  handler.__init__ = __init__
  handler._maybe_deserialize = _maybe_deserialize
  handler._names_are_asked_for = True


async def _write_nothing(*args: Any, **kwargs: Any) -> None:
  del args, kwargs
