"""An engine on the leader whose calls are repeated by every process."""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from saxml_ext.common import request_options
from saxml_ext.groups import entries
from saxml_ext.groups import group_engine
from saxml_ext.protobuf import group_pb2

# Makes a call in every process, see `Leader.run`.
Run: TypeAlias = Callable[[group_pb2.Entry, str, Callable[[], Any]], Any]


class LeaderRunner:
  """The engine that the scheduler of a group's leader uses.

  Its calls do not return once the group has ended, because the process ends
  then.

  Attributes:
    model: The number of the model in the group's log.
    num_slots: The number of slots of the engine.
  """

  def __init__(self, run: Run, model: int, runner: group_engine.Runner):
    """Stores the function that makes calls, and the leader's engine."""
    self.model = model
    self.num_slots = runner.num_slots
    self._run = run
    self._runner = runner

  def check(self, request: Any) -> None:
    """Checks a request with the leader's engine alone."""
    self._runner.check(request)

  def prefill_and_insert(self, requests: Mapping[int, Any]) -> None:
    """Starts requests in all processes; adds missing seeds."""
    seeded = {
      slot: request_options.with_seed(r) for slot, r in requests.items()
    }
    self._run(
      entries.admit(self.model, seeded),
      'a prefill',
      lambda: self._runner.prefill_and_insert(seeded),
    )

  def step(self, max_steps: int | None = None) -> dict[int, Any]:
    """Decodes some steps in all processes."""
    return self._run(
      entries.step(self.model, max_steps),
      'a step',
      lambda: self._runner.step(max_steps),
    )

  @property
  def progress(self) -> Mapping[int, Any]:
    """The progress of the leader's engine, which it computes within a step."""
    return self._runner.progress

  def interrupt(self) -> None:
    """Does nothing, because the other processes would make the whole step.

    The scheduler frees the slot after the current call.
    """

  def release(self, slot: int) -> None:
    """Frees a slot in all processes."""
    self._run(
      entries.release(self.model, slot),
      'a release',
      lambda: self._runner.release(slot),
    )

  def score(self, prefix: np.ndarray, suffix: np.ndarray) -> float:
    """Returns the sum of log p(suffix | prefix), computed in all processes."""
    return self._run(
      entries.score(self.model, prefix, suffix),
      'a score',
      lambda: self._runner.score(prefix, suffix),
    )
