"""Lets paxml 1.4.0 import, save and restore with a current orbax, no TensorFlow.

Call `install` before the first import of paxml; it does for praxis what
`compat` does, too. Checkpoints are written and read by paxml's own code in
paxml's own layouts. What is put back:

- paxml's step names lack a method that orbax has come to ask of them;
- orbax has moved the hooks through which paxml's checkpoint handler gives the
  directory of a variable its name. Without them a plain checkpoint is written
  without complaint, but to `state/0`, `state/1`, ..., and none is found;
- in the plain layout orbax now adds its own metadata about these numbers, which
  older versions of it would go by.

Importing paxml takes seconds and some 300 MB: import this module late.
"""

import importlib.util
import sys
import types
from typing import Any

import orbax.checkpoint as ocp

from saxml_ext.pax import compat

_SUMMARIES = 'clu.metric_writers.summary_writer'


def install() -> None:
  """Puts back what paxml misses; calling it again changes nothing.

  Raises:
    RuntimeError: praxis was imported before the first call; see `compat`.
  """
  compat.install()
  if importlib.util.find_spec('tensorflow') is None:
    _stand_in_for_summaries()
  from paxml import checkpoint_paths
  from paxml import checkpoints

  if not hasattr(checkpoints.PaxCheckpointHandler, '_names_are_asked_for'):
    _name_steps(checkpoint_paths.PaxStepNameFormat)
    _name_variables(checkpoints.PaxCheckpointHandler)


def _stand_in_for_summaries() -> None:
  """clu imports its writer of TensorBoard files, which nothing here writes."""
  if _SUMMARIES not in sys.modules:
    module = types.ModuleType(_SUMMARIES)
    module.SummaryWriter = type('SummaryWriter', (), {})
    sys.modules[_SUMMARIES] = module


def _name_steps(name_format: type) -> None:
  """Adds `find_step`: as find_metadata, but a missing step is an error."""

  def find_step(self: Any, base_path: Any, step: int) -> ocp.step.Metadata:
    found = self.find_metadata(base_path, step)
    if found is None:
      raise ValueError(
          f'{base_path} has no step {step}: give one of its checkpoint_<step>'
      )
    return found

  name_format.find_step = find_step
  name_format.__abstractmethods__ -= {'find_step'}


def _name_variables(handler: type) -> None:
  """Makes orbax ask the handler for names again, on saving and restoring."""
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

  handler.__init__ = __init__
  # paxml's put the names in when a checkpoint is read, which is done by now;
  # orbax has since given the method another parameter.
  del handler._maybe_deserialize
  handler._names_are_asked_for = True


async def _write_nothing(*args: Any, **kwargs: Any) -> None:
  del args, kwargs
