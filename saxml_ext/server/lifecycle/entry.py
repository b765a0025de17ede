"""One model of a server: what was asked for, and where it stands."""

import dataclasses
import enum
from typing import Generic, NamedTuple, Protocol, TypeVar

import grpc

from saxml_ext.server.lifecycle import held_requests as hold_lib
from saxml_ext.server.lifecycle import spec as spec_lib


class State(enum.Enum):
  """Where a model stands."""

  LOADING = 'loading'
  LOADED = 'loaded'
  FAILED = 'failed'
  UNLOADING = 'unloading'


class Model(Protocol):
  """What the life cycle needs of a loaded model."""

  @property
  def admission_limit(self) -> int:
    """Requests of one method it holds before it refuses more."""

  def close(self, drain: bool) -> None:
    """Stops it; with `drain` after it has answered what it holds."""


ModelT = TypeVar('ModelT', bound=Model)


@dataclasses.dataclass(frozen=True)
class Entry(Generic[ModelT]):
  """One model as of now.

  Attributes:
    spec: what was asked for.
    state: where it stands.
    reason: why it failed, or why it serves older weights than it was asked
      to; empty otherwise.
    model: the servable; only LOADED ones serve.
    hold: where requests wait while it is reloaded.
    code: what a repeated load of one that failed is told with `reason`.
  """

  spec: spec_lib.Spec
  state: State
  reason: str = ''
  model: ModelT | None = None
  hold: hold_lib.Hold | None = None
  code: grpc.StatusCode = grpc.StatusCode.INTERNAL


class Serving(NamedTuple, Generic[ModelT]):
  """A model that serves, and what was asked for."""

  spec: spec_lib.Spec
  model: ModelT
