"""What a group needs of the engine and of whoever owns the process."""

from collections.abc import Callable, Mapping
import dataclasses
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np

from saxml_ext.protobuf import modelet_pb2


class Runner(Protocol):
  """An engine with slots, see `engine.runner.Runner`.

  In a group, every process has one over a mesh of all processes' devices. Given
  the same calls in the same order, their programs run in step.

  Requests and results are the engine's own. Of a request the scheduler reads
  the `tokens` [T] alone.

  Attributes:
    num_slots: The number of requests decoded together.
  """

  num_slots: int

  @property
  def progress(self) -> Mapping[int, Any]:
    """Progress after a step, by slot, of requests that `stream` and go on."""

  def check(self, request: Any) -> None:
    """Raises ValueError for a request that the engine cannot answer."""

  def prefill_and_insert(self, requests: Mapping[int, Any]) -> None:
    """Starts requests in the free slots they are keyed by."""

  def step(self, max_steps: int | None = None) -> dict[int, Any]:
    """Decodes some steps; returns the results of slots that finished.

    Args:
      max_steps: The most steps; None leaves it to the engine.
    """

  def interrupt(self) -> None:
    """Makes the step in progress, or the next one, return soon.

    Any thread may call it. An engine that cannot do so does nothing; its calls
    are short where that matters.
    """

  def release(self, slot: int) -> None:
    """Frees a slot whose request is given up."""

  def score(self, prefix: np.ndarray, suffix: np.ndarray) -> float:
    """Returns the sum of log p(suffix | prefix)."""


class Prepared(Protocol):
  """A model as far as a process can bring it alone.

  Attributes:
    identity: what the processes of a group must agree on, name -> short text
      or hash.
  """

  @property
  def identity(self) -> Mapping[str, str]: ...

  def start(self) -> Runner:
    """Runs the first programs; all processes of a group do so together."""


PreparedT = TypeVar('PreparedT', bound=Prepared)
PrepareFn: TypeAlias = Callable[[modelet_pb2.LoadRequest], PreparedT]


@dataclasses.dataclass(frozen=True)
class Limits:
  """How long what may take, in seconds.

  Attributes:
    silence: without a sign of life from a process, until it counts as lost.
    step: a call of the engine.
    load: preparing or starting a model.
    join: from the start of the group until all its processes have joined.
  """

  silence: float = 1.5
  step: float = 60.0
  load: float = 3600.0
  join: float = 120.0


@dataclasses.dataclass(frozen=True)
class Host:
  """A process of the group, as messages name it.

  Attributes:
    name: of its host.
    process_id: in the group.
  """

  name: str
  process_id: int

  def __str__(self) -> str:
    return f'host {self.name} (process {self.process_id})'
