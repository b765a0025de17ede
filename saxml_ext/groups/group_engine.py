"""Protocols and types that connect a group to engines and the process."""

from collections.abc import Callable, Mapping
import dataclasses
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np

from saxml_ext.protobuf import modelet_pb2


class Runner(Protocol):
  """An engine with slots, see `engine.runner.Runner`.

  In a group, every process has an engine over a mesh of all processes' devices.
  All engines get the same calls in the same order, so their programs run in
  step.

  The engine defines the types of requests and results. The scheduler reads only
  the `tokens` [T] of a request.

  Attributes:
    num_slots: The number of requests decoded together.
  """

  num_slots: int

  @property
  def progress(self) -> Mapping[int, Any]:
    """The progress of streaming, unfinished requests after a step, by slot."""

  def check(self, request: Any) -> None:
    """Raises ValueError for a request that the engine cannot answer."""

  def prefill_and_insert(self, requests: Mapping[int, Any]) -> None:
    """Starts requests in free slots; `requests` maps slots to requests."""

  def step(self, max_steps: int | None = None) -> dict[int, Any]:
    """Decodes some steps; returns the results of the slots that finished.

    Args:
      max_steps: The maximum number of steps; None lets the engine choose.
    """

  def interrupt(self) -> None:
    """Makes the current or the next step return soon.

    Any thread may call it. An engine that cannot interrupt a step does nothing.
    The calls of such an engine are short where this matters.
    """

  def release(self, slot: int) -> None:
    """Frees a slot whose request is abandoned."""

  def score(self, prefix: np.ndarray, suffix: np.ndarray) -> float:
    """Returns the sum of log p(suffix | prefix)."""


class Prepared(Protocol):
  """A model, prepared as far as a process can do without the other processes.

  Attributes:
    identity: The properties that must be equal in all processes of a group, as
      a mapping from a name to a short text or hash.
  """

  @property
  def identity(self) -> Mapping[str, str]: ...

  def start(self) -> Runner:
    """Runs the first programs, in all processes of the group together."""


PreparedT = TypeVar('PreparedT', bound=Prepared)
PrepareFn: TypeAlias = Callable[[modelet_pb2.LoadRequest], PreparedT]


@dataclasses.dataclass(frozen=True)
class Limits:
  """The timeouts of a group, in seconds.

  Attributes:
    silence: The timeout after which a silent process is lost.
    step: The timeout of an engine call.
    load: The timeout of preparing or starting a model.
    join: The timeout from the start of the group until all processes have
      joined.
  """

  silence: float = 1.5
  step: float = 60.0
  load: float = 3600.0
  join: float = 120.0


@dataclasses.dataclass(frozen=True)
class Host:
  """A process of the group, as messages name it.

  Attributes:
    name: The name of its host.
    process_id: The number of the process in the group.
  """

  name: str
  process_id: int

  def __str__(self) -> str:
    return f'host {self.name} (process {self.process_id})'
