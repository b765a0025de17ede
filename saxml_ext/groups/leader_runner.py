"""An engine of the leader's, each call of which every process makes."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from saxml_ext.common import request_options
from saxml_ext.groups import entries
from saxml_ext.groups import group_engine
from saxml_ext.protobuf import group_pb2


class Run(Protocol):
  """Makes a call in every process, see `Leader.run`."""

  def __call__(
    self, entry: group_pb2.Entry, what: str, call: Callable[[], Any]
  ) -> Any: ...


class LeaderRunner:
  """What the scheduler has in place of the engine.

  Its calls do not return once the group has ended; the process ends then.

  Attributes:
    model: number of the model in the group's log.
    num_slots: as the engine's.
  """

  def __init__(self, run: Run, model: int, runner: group_engine.Runner):
    """Takes the leader's way to make a call, and the leader's engine."""
    self.model = model
    self.num_slots = runner.num_slots
    self._run = run
    self._runner = runner

  def check(self, request: Any) -> None:
    """As the engine's; of the leader alone."""
    self._runner.check(request)

  def prefill_and_insert(self, requests: Mapping[int, Any]) -> None:
    """As the engine's; requests without a seed get one."""
    seeded = {
      slot: request_options.with_seed(r) for slot, r in requests.items()
    }
    self._run(
      entries.admit(self.model, seeded),
      'a prefill',
      lambda: self._runner.prefill_and_insert(seeded),
    )

  def step(self, max_steps: int | None = None) -> dict[int, Any]:
    """As the engine's."""
    return self._run(
      entries.step(self.model, max_steps),
      'a step',
      lambda: self._runner.step(max_steps),
    )

  @property
  def progress(self) -> Mapping[int, Any]:
    """As the engine's, which computes it within a step."""
    return self._runner.progress

  def interrupt(self) -> None:
    """Does nothing: the other processes would make the whole step.

    The scheduler frees the slot after the call in progress.
    """

  def release(self, slot: int) -> None:
    """As the engine's."""
    self._run(
      entries.release(self.model, slot),
      'a release',
      lambda: self._runner.release(slot),
    )

  def score(self, prefix: np.ndarray, suffix: np.ndarray) -> float:
    """As the engine's."""
    return self._run(
      entries.score(self.model, prefix, suffix),
      'a score',
      lambda: self._runner.score(prefix, suffix),
    )
