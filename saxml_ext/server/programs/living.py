"""Programs of the models that are loaded, for others that are alike.

Programs depend on settings, shapes and devices, and not on weights. A model
that gets another checkpoint, or a second one of the same params, needs no
program that is not in this process already; compiling them again would take
the cores from those who are being served.
"""

from collections.abc import Callable
import threading
from typing import Any
import weakref

import jax

from saxml_ext.engine import executables


class Living:
  """What the loaded models run. Safe to use from several threads.

  It keeps no model in memory.
  """

  def __init__(self):
    """Knows no model yet."""
    self._lock = threading.Lock()
    self._runs: weakref.WeakSet[executables.Executables] = weakref.WeakSet()

  def add(self, run: executables.Executables) -> None:
    """Offers the programs of a model, as long as it lives."""
    with self._lock:
      self._runs.add(run)

  def ready(
    self,
    wanted: executables.Executables,
    otherwise: executables.Ready | None = None,
  ) -> executables.Ready:
    """Programs of models that live when they are asked for.

    Args:
      wanted: of the model that needs them; shapes will do for its weights.
      otherwise: where to look for those that none of them has.
    """

    def ready(
      key: executables.Key, signature: executables.Signature
    ) -> Callable | None:
      found = self._find(wanted, key, signature)
      if found is None and otherwise is not None:
        return otherwise(key, signature)
      return found

    return ready

  def _find(
    self,
    wanted: executables.Executables,
    key: executables.Key,
    signature: executables.Signature,
  ) -> Callable | None:
    with self._lock:
      runs = list(self._runs)
    for run in runs:
      if run.settings != wanted.settings or run.mesh != wanted.mesh:
        continue
      program = run.prepared(key)
      if program is not None and _same(run.signature(key), signature):
        return program
    return None


def _same(one: Any, other: Any) -> bool:
  """Whether two trees are alike: structure, shapes, types and shardings."""
  leaves, structure = jax.tree.flatten(one)
  others, wanted = jax.tree.flatten(other)
  return structure == wanted and leaves == others
