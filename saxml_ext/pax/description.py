"""gptj_config.json: what a checkpoint says of its model beside the weights.

The converter writes it beside checkpoint_00000000. A checkpoint of another
converter has none; then the serving params have to know.
"""

from collections.abc import Sequence
import dataclasses
import json
import os
from typing import Any

from saxml_ext.common import errors
from saxml_ext.common import storage

_FILE = 'gptj_config.json'


@dataclasses.dataclass(frozen=True)
class Description:
  """The entries that serving needs; None where nothing is said.

  Attributes:
    rotary_dim: leading dimensions of each head that rotate.
    ln_epsilon: of the layer norms.
    max_positions: longest sequence the model was made for.
    eos_id: the token that ends a text.
  """

  rotary_dim: int | None = None
  ln_epsilon: float | None = None
  max_positions: int | None = None
  eos_id: int | None = None


def read(checkpoint_path: str) -> Description:
  """Reads the description in the checkpoint's directory or the one above.

  Raises:
    errors.InvalidArgument: the file is malformed.
  """
  base = checkpoint_path.rstrip('/')
  for directory in (base, os.path.dirname(base)):
    path = os.path.join(directory, _FILE)
    if storage.is_file(path):
      return _parse(path)
  return Description()


def _parse(path: str) -> Description:
  try:
    document = json.loads(storage.read_bytes(path))
  except (OSError, ValueError) as e:
    raise errors.InvalidArgument(
        f'{path} cannot be read: {e}; convert the checkpoint again'
    ) from e
  if not isinstance(document, dict):
    raise errors.InvalidArgument(
        f'{path} holds a {type(document).__name__} instead of a JSON object;'
        ' convert the checkpoint again'
    )
  return Description(
      rotary_dim=_number(path, document, 'rotary_dim', (int,)),
      ln_epsilon=_number(path, document, 'layer_norm_epsilon', (int, float)),
      max_positions=_number(path, document, 'max_positions', (int,)),
      eos_id=_number(path, document, 'eos_token_id', (int,)),
  )


def _number(
    path: str, document: dict[str, Any], key: str, types: Sequence[type]
) -> Any:
  value = document.get(key)
  if value is not None and type(value) not in types:
    raise errors.InvalidArgument(
        f'{path}: {key} is {value!r}, but must be a number; convert the'
        ' checkpoint again'
    )
  return value
