"""What flags choose of how a model server behaves towards its cell."""

from collections.abc import Callable
import dataclasses

from saxml_ext.server.lifecycle import entry as entry_lib


@dataclasses.dataclass(frozen=True)
class Behaviour:
  """The choices.

  Attributes:
    early_reject: whether requests are refused once the server was told to
      stop, for clients to go elsewhere at once.
    keep_static: whether the models loaded at the start are all there will be.
    has_room: see `lifecycle.Models`.
  """

  early_reject: bool = False
  keep_static: bool = False
  has_room: Callable[[entry_lib.Spec], bool] = lambda spec: False


DEFAULT = Behaviour()
