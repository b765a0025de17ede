"""What a model server is asked to load."""

from collections.abc import Mapping
import dataclasses


@dataclasses.dataclass(frozen=True)
class Spec:
  """One model to load.

  Attributes:
    model_path: registered name of the serving params.
    checkpoint_path: where the weights are.
    overrides: attribute of the params -> value as JSON.
    acls: data method -> name of the list of those who may call it.
  """

  model_path: str
  checkpoint_path: str
  overrides: Mapping[str, str]
  acls: Mapping[str, str]
