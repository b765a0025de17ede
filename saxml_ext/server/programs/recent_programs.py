"""Keeps the programs of recently loaded models for similar models.

Programs depend on settings, shapes and devices, but not on weights. So a model
needs no new programs in these cases:

- It gets another checkpoint.
- It has the same params as another model.
- It is loaded again.

To compile the programs again would take minutes, and would slow down the models
that serve.
"""

from collections.abc import Callable, Mapping
import dataclasses
import threading
from typing import Any

import jax

from saxml_ext.engine import executables
from saxml_ext.engine import state

# The maximum number of program sets. The machine code of a set takes megabytes.
_MOST = 4


@dataclasses.dataclass(frozen=True)
class _Set:
  """All programs of one model.

  Attributes:
    settings: The static settings.
    mesh: The devices.
    programs: The programs and their call signatures.
  """

  settings: state.Settings
  mesh: jax.sharding.Mesh | None
  programs: Mapping[
    executables.Key, tuple[executables.Signature, Callable[..., Any]]
  ]

  def suits(self, run: executables.Executables) -> bool:
    """Returns True if the settings and devices are equal."""
    return self.settings == run.settings and self.mesh == run.mesh


class RecentPrograms:
  """The programs of the most recent models. Safe to use from several threads.

  It keeps neither weights nor states in memory.
  """

  def __init__(self):
    """Creates an object without programs."""
    self._lock = threading.Lock()
    self._sets: list[_Set] = []  # The newest is the last.

  def add(self, run: executables.Executables) -> None:
    """Adds the programs of a model."""
    programs = {
      key: (run.signature(key), program)
      for key in run.keys()
      if (program := run.prepared(key)) is not None
    }
    added = _Set(run.settings, run.mesh, programs)
    with self._lock:
      # Sets with equal settings may differ in the types of the weights.
      self._sets = [s for s in self._sets if not _is_part(s, added)]
      self._sets = [*self._sets, added][-_MOST:]

  def ready(
    self,
    run: executables.Executables,
    otherwise: executables.Ready | None = None,
  ) -> executables.Ready:
    """Returns a function that looks up programs of the known models.

    Args:
      run: The programs of the new model; shapes are sufficient for its
        weights.
      otherwise: A function that looks up the programs that no known model has.
    """
    with self._lock:
      sets = [stored for stored in self._sets if stored.suits(run)]

    def ready(
      key: executables.Key, signature: executables.Signature
    ) -> Callable | None:
      for stored in sets:
        if key in stored.programs:
          called, program = stored.programs[key]
          if _same(called, signature):
            return program
      return None if otherwise is None else otherwise(key, signature)

    return ready


def _is_part(one: _Set, other: _Set) -> bool:
  """Returns True if `other` has all programs of `one`."""
  return (
    (one.settings, one.mesh) == (other.settings, other.mesh)
    and one.programs.keys() <= other.programs.keys()
    and all(
      program is other.programs[key][1]
      for key, (_, program) in one.programs.items()
    )
  )


def _same(left: Any, right: Any) -> bool:
  """Returns True if structures, shapes, types and shardings are equal."""
  left_leaves, left_structure = jax.tree.flatten(left)
  right_leaves, right_structure = jax.tree.flatten(right)
  return left_structure == right_structure and left_leaves == right_leaves
