"""Programs of models that were loaded lately, for others that are alike.

Programs depend on settings, shapes and devices, and not on weights. A model
that gets another checkpoint, a second one of the same params, or one that comes
back needs no program that is not in this process already; compiling them again
would take minutes, and the cores from those who are being served.
"""

from collections.abc import Callable, Mapping
import dataclasses
import threading
from typing import Any

import jax

from saxml_ext.engine import executables
from saxml_ext.engine import state

# Sets of programs that are kept. The machine code of one takes megabytes.
_MOST = 4


@dataclasses.dataclass(frozen=True)
class _Set:
  """All programs of one model.

  Attributes:
    settings: static ones.
    mesh: the devices.
    programs: with how each is called.
  """

  settings: state.Settings
  mesh: jax.sharding.Mesh | None
  programs: Mapping[
    executables.Key, tuple[executables.Signature, Callable[..., Any]]
  ]

  def suits(self, run: executables.Executables) -> bool:
    """Whether they are of such settings."""
    return self.settings == run.settings and self.mesh == run.mesh


class Living:
  """The programs of the last models. Safe to use from several threads.

  It keeps no weights in memory, and no state.
  """

  def __init__(self):
    """Knows no model yet."""
    self._lock = threading.Lock()
    self._sets: list[_Set] = []  # The newest last.

  def add(self, run: executables.Executables) -> None:
    """Offers the programs that a model has."""
    found = {
      key: (run.signature(key), program)
      for key in run.keys()
      if (program := run.prepared(key)) is not None
    }
    added = _Set(run.settings, run.mesh, found)
    with self._lock:
      # Of two that are alike in settings, weights may have other types.
      self._sets = [s for s in self._sets if not _same_programs(s, added)]
      self._sets = [*self._sets, added][-_MOST:]

  def ready(
    self,
    wanted: executables.Executables,
    otherwise: executables.Ready | None = None,
  ) -> executables.Ready:
    """Programs of the models that are known by now.

    Args:
      wanted: of the model that needs them; shapes will do for its weights.
      otherwise: where to look for those that none of them has.
    """
    with self._lock:
      sets = [each for each in self._sets if each.suits(wanted)]

    def ready(
      key: executables.Key, signature: executables.Signature
    ) -> Callable | None:
      for each in sets:
        if key in each.programs:
          called, program = each.programs[key]
          if _same(called, signature):
            return program
      return None if otherwise is None else otherwise(key, signature)

    return ready


def _same_programs(one: _Set, other: _Set) -> bool:
  return (
    (one.settings, one.mesh) == (other.settings, other.mesh)
    and one.programs.keys() == other.programs.keys()
    and all(
      program is other.programs[key][1]
      for key, (_, program) in one.programs.items()
    )
  )


def _same(one: Any, other: Any) -> bool:
  """Whether two trees are alike: structure, shapes, types and shardings."""
  leaves, structure = jax.tree.flatten(one)
  others, wanted = jax.tree.flatten(other)
  return structure == wanted and leaves == others
