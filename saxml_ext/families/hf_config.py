"""Reads the entries of config.json that conversion and serving need."""

from collections.abc import Mapping
import dataclasses
from typing import Any

from saxml_ext.pax import errors


@dataclasses.dataclass(frozen=True)
class HFConfig:
  """The entries that conversion and serving need."""

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
  rotary_base: float = 10000.0
  num_kv_heads: int = 0
  # All tokens that end an answer; the first is eos_token_id.
  stop_token_ids: tuple[int, ...] = ()

  @property
  def head_dim(self) -> int:
    return self.model_dim // self.num_heads


class Fields:
  """Typed access to the entries of one config.json."""

  def __init__(self, path: str, document: Mapping[str, Any]):
    self.path = path
    self._document = document

  def get(self, name: str, default: Any = None) -> Any:
    """Returns an entry, or the default if it is missing or null."""
    value = self._document.get(name)
    return default if value is None else value

  def integer(self, name: str, default: int | None = None) -> int:
    value = self.get(name, default)
    if type(value) is not int or not 0 < value < 1 << 31:
      raise self.error(name, value, 'a positive integer')
    return value

  def number(self, name: str, default: float, below: float = 1) -> float:
    value = self.get(name, default)
    if type(value) not in (int, float) or not 0 < value < below:
      raise self.error(name, value, f'a number between 0 and {below:g}')
    return float(value)

  def choice(self, name: str, default: Any, choices: tuple[Any, ...]) -> Any:
    value = self.get(name, default)
    if value not in choices:
      listed = ', '.join(map(str, choices))
      raise self.error(name, value, f'one of {listed}')
    return value

  def token(self, name: str) -> int | None:
    """Returns the id of a token, the first of several; None if there is none."""
    return next(iter(self.tokens(name)), None)

  def tokens(self, name: str) -> tuple[int, ...]:
    """Returns the ids of an entry that is an id, a list of ids or null."""
    value = self.get(name, [])
    ids = tuple(value) if isinstance(value, list) else (value,)
    if any(type(id_) is not int or id_ < 0 for id_ in ids):
      raise self.error(name, value, 'the id of a token')
    return ids

  def error(self, name: str, value: Any, expected: str) -> Exception:
    return errors.CheckpointError(
      f'{self.path}: {name} is {str(value)[:100]!r}; expected {expected}'
    )
