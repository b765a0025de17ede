"""Reads what a Hugging Face directory says of its model in JSON."""

import dataclasses
import json
import os
from typing import Any

from saxml_ext.families import all as families
from saxml_ext.families import family as family_lib
from saxml_ext.families import hf_config
from saxml_ext.pax import errors

# The index of GPT-J 6B's shards has 30 KB. JSON may take far more memory than
# its text.
_MAX_JSON_BYTES = 1 << 20


def read_json(path: str) -> dict[str, Any]:
  """Reads a JSON object.

  Raises:
    errors.CheckpointError: the file is missing, too big or no JSON object.
  """
  try:
    with open(path, 'rb') as f:
      data = f.read(_MAX_JSON_BYTES + 1)
  except OSError as e:
    raise errors.CheckpointError(
      f'{path} cannot be read: {e.strerror}; expected the file that '
      'save_pretrained writes'
    ) from e
  if len(data) > _MAX_JSON_BYTES:
    raise errors.CheckpointError(
      f'{path} has more than {_MAX_JSON_BYTES} bytes, far more than any model'
      ' needs there; replace it by the one of the model'
    )
  try:
    document = json.loads(data)
  except (ValueError, RecursionError) as e:
    raise errors.CheckpointError(f'{path} is not JSON: {e}') from e
  if not isinstance(document, dict):
    raise errors.CheckpointError(
      f'{path} holds a {type(document).__name__}; expected a JSON object'
    )
  return document


def read_config(
  directory: str,
) -> tuple[family_lib.Family, hf_config.HFConfig]:
  """Reads `config.json`; returns the family of the model and its sizes.

  Raises:
    errors.CheckpointError: It is missing, of no known family, or wants code of
      its own to be run.
  """
  path = os.path.join(directory, 'config.json')
  document = read_json(path)
  if 'auto_map' in document:
    raise errors.CheckpointError(
      f'{path} names code that comes with the checkpoint (auto_map); it is '
      'refused and was not run. Known models need none: remove the entry if '
      'you trust the weights'
    )
  name = document.get('model_type')
  family = families.FAMILIES.get(name) if isinstance(name, str) else None
  if family is None or family.read_config is None:
    known = ', '.join(families.convertible())
    raise errors.CheckpointError(
      f'{path}: model_type is {name!r}; known are {known}'
    )
  fields = hf_config.Fields(path, document)
  config = dataclasses.replace(
    family.read_config(fields), stop_token_ids=fields.tokens('eos_token_id')
  )
  if config.model_dim % config.num_heads:
    raise errors.CheckpointError(
      f'{path}: the width {config.model_dim} is not a multiple of the number'
      f' of heads, {config.num_heads}'
    )
  if config.rotary_dim > config.head_dim or config.rotary_dim % 2:
    raise errors.CheckpointError(
      f'{path}: rotary_dim is {config.rotary_dim}; expected an even number '
      f'of at most {config.head_dim} (width / heads)'
    )
  return family, config
