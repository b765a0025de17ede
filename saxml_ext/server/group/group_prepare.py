"""How a process of a group prepares the models that it is told to load."""

from collections.abc import Callable
from typing import Protocol, TypeAlias

from saxml_ext.groups import group_engine
from saxml_ext.params import settings as settings_lib
from saxml_ext.protobuf import modelet_pb2
from saxml_ext.server.lifecycle import entry as entry_lib
from saxml_ext.server.vocabulary import codec


class Prepared(group_engine.Prepared, Protocol):
  """A model as far as one process can bring it, see `loader.prepare`.

  Attributes:
    settings: of its serving params.
    codecs: of its texts.
  """

  @property
  def settings(self) -> settings_lib.Settings: ...

  @property
  def codecs(self) -> codec.Codecs: ...


PrepareFn: TypeAlias = Callable[[entry_lib.Spec], Prepared]


def of_request(
  prepare: PrepareFn,
) -> Callable[[modelet_pb2.LoadRequest], Prepared]:
  """The same function of what the group's log says of a model."""

  def prepare_request(request: modelet_pb2.LoadRequest) -> Prepared:
    return prepare(
      entry_lib.Spec(
        request.model_path,
        request.checkpoint_path,
        dict(request.overrides),
        acls={},
      )
    )

  return prepare_request
