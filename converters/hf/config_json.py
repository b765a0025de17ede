"""What a Hugging Face GPT-J directory says of its model in JSON."""

import dataclasses
import json
import os
from typing import Any

from saxml_ext.pax import errors

# The index of GPT-J 6B's shards has 30 KB. JSON may take far more memory than
# its text.
_MAX_JSON_BYTES = 1 << 20
# All are the tanh approximation of GELU, which praxis computes as well.
_ACTIVATIONS = ('gelu_new', 'gelu_pytorch_tanh', 'gelu_fast')


@dataclasses.dataclass(frozen=True)
class HFConfig:
  """The fields of `config.json` that conversion and serving need."""

  num_layers: int
  model_dim: int
  num_heads: int
  hidden_dim: int
  rotary_dim: int
  vocab_size: int
  max_positions: int
  layer_norm_epsilon: float
  tied_embeddings: bool
  bos_token_id: int | None
  eos_token_id: int | None
  pad_token_id: int | None


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


def read_config(directory: str) -> HFConfig:
  """Reads `config.json`.

  Raises:
    errors.CheckpointError: it is missing, not a GPT-J's, or wants code of its
      own to be run.
  """
  path = os.path.join(directory, 'config.json')
  document = read_json(path)
  if 'auto_map' in document:
    raise errors.CheckpointError(
      f'{path} names code that comes with the checkpoint (auto_map); it is '
      'refused and was not run. A GPT-J needs none: remove the entry if '
      'you trust the weights'
    )
  model_type = document.get('model_type')
  if model_type != 'gptj':
    raise errors.CheckpointError(
      f'{path}: model_type is {model_type!r}; only gptj is supported'
    )
  activation = document.get('activation_function', 'gelu_new')
  if activation not in _ACTIVATIONS:
    raise errors.CheckpointError(
      f'{path}: activation_function is {activation!r}; supported are '
      f'{", ".join(_ACTIVATIONS)}'
    )
  fields = _Fields(path, document)
  model_dim = fields.integer('n_embd')
  config = HFConfig(
    num_layers=fields.integer('n_layer'),
    model_dim=model_dim,
    num_heads=fields.integer('n_head'),
    hidden_dim=fields.integer('n_inner', 4 * model_dim),
    rotary_dim=fields.integer('rotary_dim', 64),
    vocab_size=fields.integer('vocab_size'),
    max_positions=fields.integer('n_positions', 2048),
    layer_norm_epsilon=fields.number('layer_norm_epsilon', 1e-5),
    tied_embeddings=bool(document.get('tie_word_embeddings', False)),
    bos_token_id=fields.token('bos_token_id'),
    eos_token_id=fields.token('eos_token_id'),
    pad_token_id=fields.token('pad_token_id'),
  )
  if config.model_dim % config.num_heads:
    raise errors.CheckpointError(
      f'{path}: n_embd {config.model_dim} is not a multiple of n_head '
      f'{config.num_heads}'
    )
  head_dim = config.model_dim // config.num_heads
  if config.rotary_dim > head_dim or config.rotary_dim % 2:
    raise errors.CheckpointError(
      f'{path}: rotary_dim is {config.rotary_dim}; expected an even number '
      f'of at most {head_dim} (n_embd / n_head)'
    )
  return config


class _Fields:
  """Typed access to the entries of one config.json."""

  def __init__(self, path: str, document: dict[str, Any]):
    self._path = path
    self._document = document

  def integer(self, name: str, default: int | None = None) -> int:
    value = self._document.get(name)
    value = default if value is None else value
    if type(value) is not int or not 0 < value < 1 << 31:
      raise self._error(name, value, 'a positive integer')
    return value

  def number(self, name: str, default: float) -> float:
    value = self._document.get(name, default)
    if type(value) not in (int, float) or not 0 < value < 1:
      raise self._error(name, value, 'a number between 0 and 1')
    return float(value)

  def token(self, name: str) -> int | None:
    value = self._document.get(name)
    if isinstance(value, list) and value:
      value = value[0]
    if value is not None and (type(value) is not int or value < 0):
      raise self._error(name, value, 'the id of a token')
    return value

  def _error(self, name, value, expected) -> errors.CheckpointError:
    return errors.CheckpointError(
      f'{self._path}: {name} is {str(value)[:100]!r}; expected {expected}'
    )
