"""Reads and writes config.json of Hugging Face models by tables of families."""

from collections.abc import Mapping
import dataclasses
from typing import Any

from saxml_ext.engine import architecture
from saxml_ext.pax import errors

# The keys that config.json of every family has, by field of HFConfig.
_COMMON = {
  'vocab_size': 'vocab_size',
  'tied_embeddings': 'tie_word_embeddings',
  'bos_id': 'bos_token_id',
  'eos_id': 'eos_token_id',
  'pad_id': 'pad_token_id',
}
# The value of rope_type, and the entries of the fields of architecture.RotaryScaling.
_LLAMA3 = 'llama3'
_SCALING_KEYS = (
  'factor',
  'low_freq_factor',
  'high_freq_factor',
  'original_max_position_embeddings',
)
_SCALING_LIMIT = 1e9
# The fields that are not integers, and the upper bounds of their values.
_LIMITS = {'ln_epsilon': 1, 'rotary_share': 1.0000001, 'rotary_base': 1e9}


@dataclasses.dataclass(frozen=True)
class HFConfig:
  """The entries of config.json that conversion and serving need.

  The first five fields are at least 1.

  Attributes:
    num_layers, model_dim, num_heads, hidden_dim, vocab_size: The sizes of the
      model. A checkpoint's vocabulary may be larger; see `layout`.
    num_kv_heads: The number of heads of keys and values; 0 means num_heads.
    rotary_dim: The number of leading dims of each head that rotate.
    rotary_base: The base of the wavelengths of rotary positions.
    rotary_scaling: The scaling of rotary positions; None for no scaling.
    max_positions: The maximum sequence length of the model, in tokens.
    ln_epsilon: The number that is added to the variance in norms.
    tied_embeddings: True if the head may be the embedding.
    bos_id, eos_id, pad_id: The tokens that begin a text, end a text, and fill
      up a batch.
    stop_ids: All tokens that end an answer; the first is eos_id.
  """

  num_layers: int
  model_dim: int
  num_heads: int
  hidden_dim: int
  vocab_size: int
  num_kv_heads: int = 0
  rotary_dim: int = 0
  rotary_base: float = 10000.0
  rotary_scaling: architecture.RotaryScaling | None = None
  max_positions: int = 2048
  ln_epsilon: float = 1e-5
  tied_embeddings: bool = False
  bos_id: int | None = None
  eos_id: int | None = None
  pad_id: int | None = None
  stop_ids: tuple[int, ...] = ()

  def __post_init__(self):
    """Checks the sizes.

    Raises:
      errors.CheckpointError: A size is too small, or sizes do not fit together.
    """
    for field in dataclasses.fields(self)[:5]:
      if getattr(self, field.name) < 1:
        raise errors.CheckpointError(
          f'{field.name} is {getattr(self, field.name)}. The minimum is 1.'
        )
    if self.model_dim % self.num_heads:
      raise errors.CheckpointError(
        f'model_dim {self.model_dim} is not a multiple of num_heads'
        f' {self.num_heads}.'
      )
    if self.num_heads % self.kv_heads:
      raise errors.CheckpointError(
        f'num_heads {self.num_heads} is not a multiple of num_kv_heads'
        f' {self.num_kv_heads}.'
      )
    if self.rotary_dim > self.head_dim or self.rotary_dim % 2:
      raise errors.CheckpointError(
        f'rotary_dim is {self.rotary_dim}. Expected an even number of at most'
        f' {self.head_dim} (model_dim / num_heads).'
      )

  @property
  def kv_heads(self) -> int:
    """The number of heads of keys and values."""
    return self.num_kv_heads or self.num_heads

  @property
  def head_dim(self) -> int:
    return self.model_dim // self.num_heads


@dataclasses.dataclass(frozen=True)
class Table:
  """The names and the accepted values in config.json of one family.

  Attributes:
    model_class: The class of transformers, such as GPTJForCausalLM.
    keys: The key of each field of HFConfig that the family has. In place of
      rotary_dim it may be `rotary_share`, the share of a head that rotates.
      Without both, the whole head rotates.
    defaults: The values of fields that may be missing. The default of
      hidden_dim is a multiple of the width.
    accepted: The values that other keys may have; the first is the default.
    rotary_names: The names that older files use for the entries of
      `rope_parameters`. transformers 5 writes the settings of rotary positions
      there. Older files have the settings of scaling in `rope_scaling`.
  """

  model_class: str
  keys: Mapping[str, str]
  defaults: Mapping[str, float]
  accepted: Mapping[str, tuple[Any, ...]]
  rotary_names: Mapping[str, str] = dataclasses.field(default_factory=dict)


class _Entries:
  """Typed access to the entries of one config.json."""

  def __init__(self, path: str, document: Mapping[str, Any]):
    self._path = path
    self._document = document

  def get(self, key: str, default: Any = None) -> Any:
    """Returns an entry, or the default if it is missing or null."""
    value = self._document.get(key)
    return default if value is None else value

  def integer(self, key: str, default: float | None) -> int:
    value = self.get(key, default)
    if type(value) is not int or not 0 < value < 1 << 31:
      raise self._error(key, value, 'a positive integer')
    return value

  def number(self, key: str, default: float | None, below: float) -> float:
    value = self.get(key, default)
    if type(value) not in (int, float) or not 0 < value < below:
      raise self._error(key, value, f'a number between 0 and {below:g}')
    return float(value)

  def check(self, key: str, accepted: tuple[Any, ...]) -> None:
    value = self.get(key, accepted[0])
    if value not in accepted:
      listed = ', '.join(map(str, accepted))
      raise self._error(key, value, f'one of {listed}')

  def tokens(self, key: str) -> tuple[int, ...]:
    """Returns the ids of an entry that is an id, a list of ids or null."""
    value = self.get(key, [])
    ids = tuple(value) if isinstance(value, list) else (value,)
    if any(type(id_) is not int or id_ < 0 for id_ in ids):
      raise self._error(key, value, 'the id of a token')
    return ids

  def _error(self, key: str, value: Any, expected: str) -> Exception:
    return errors.CheckpointError(
      f'{self._path}: {key} is {str(value)[:100]!r}. Expected {expected}.'
    )


def read(path: str, document: Mapping[str, Any], table: Table) -> HFConfig:
  """Returns the sizes of a model from the contents of its config.json.

  Args:
    path: The path of the file, for messages.
    document: The contents of the file.
    table: The names of the entries in the family's files.

  Raises:
    errors.CheckpointError: An entry is missing, has another type or is not
      accepted, or the sizes do not fit together.
  """
  rotation = document.get('rope_parameters')
  if table.rotary_names and not isinstance(rotation, dict):
    scaling = document.get('rope_scaling') or {}
    rotation = {'rope_type': scaling.get('type'), **scaling}
    rotation |= {k: document.get(old) for k, old in table.rotary_names.items()}
  entries = _Entries(path, {**document, **(rotation or {})})
  for key, accepted in table.accepted.items():
    entries.check(key, accepted)
  found: dict[str, Any] = {}
  for field, key in table.keys.items():
    default = table.defaults.get(field)
    if field == 'hidden_dim' and default:
      default *= found['model_dim']
    if field == 'num_kv_heads':
      default = found['num_heads']
    if field in _LIMITS:
      found[field] = entries.number(key, default, _LIMITS[field])
    else:
      found[field] = entries.integer(key, default)
  share = found.pop('rotary_share', 1.0)
  head_dim = found['model_dim'] // found['num_heads']
  found.setdefault('rotary_dim', int(share * head_dim))
  entries.check('head_dim', (head_dim,))
  if entries.get('rope_type') == _LLAMA3:
    found['rotary_scaling'] = _scaling(path, entries)
  ids = {f: entries.tokens(_COMMON[f]) for f in ('bos_id', 'eos_id', 'pad_id')}
  first = {field: next(iter(tokens), None) for field, tokens in ids.items()}
  try:
    return HFConfig(
      **found,
      vocab_size=entries.integer(_COMMON['vocab_size'], None),
      tied_embeddings=bool(entries.get(_COMMON['tied_embeddings'])),
      bos_id=first['bos_id'],
      eos_id=first['eos_id'],
      pad_id=first['pad_id'],
      stop_ids=ids['eos_id'],
    )
  except errors.CheckpointError as e:
    raise errors.CheckpointError(f'{path}: {e}') from e


def _scaling(path: str, entries: _Entries) -> architecture.RotaryScaling:
  *keys, length = _SCALING_KEYS
  factor, low, high = (entries.number(k, None, _SCALING_LIMIT) for k in keys)
  try:
    return architecture.RotaryScaling(
      factor, low, high, entries.integer(length, None)
    )
  except ValueError as e:
    raise errors.CheckpointError(f'{path}: {e}') from e


def with_generation(
  config: HFConfig, path: str, document: Mapping[str, Any]
) -> HFConfig:
  """Returns the config with the end ids of generation_config.json, if any.

  transformers also prefers these ids to those of config.json.

  Args:
    config: The config.
    path: The path of generation_config.json, for messages.
    document: The contents of the file.

  Raises:
    errors.CheckpointError: An end id is not the id of a token.
  """
  ids = _Entries(path, document).tokens(_COMMON['eos_id'])
  if not ids:
    return config
  return dataclasses.replace(config, eos_id=ids[0], stop_ids=ids)


def document(name: str, config: HFConfig, table: Table) -> dict[str, Any]:
  """Returns the contents of a config.json, with the names of older files.

  Args:
    name: The name of the family, `model_type`.
    config: The entries to write.
    table: The names of the entries in the family's files.
  """
  values = {
    **dataclasses.asdict(config),
    'rotary_share': config.rotary_dim / config.head_dim,
    'num_kv_heads': config.kv_heads,
  }
  if len(config.stop_ids) > 1:
    values['eos_id'] = list(config.stop_ids)
  keys = {**table.keys, **_COMMON}
  return {
    'architectures': [table.model_class],
    'model_type': name,
    # Like in transformers, entries that are null or 'default' are omitted.
    **{
      key: accepted[0]
      for key, accepted in table.accepted.items()
      if accepted[0] not in (None, 'default')
    },
    **{table.rotary_names.get(k, k): values[f] for f, k in keys.items()},
    **(
      {'rope_scaling': {'rope_type': _LLAMA3, **_scaling_entries(scaling)}}
      if (scaling := config.rotary_scaling)
      else {}
    ),
  }


def _scaling_entries(scaling: architecture.RotaryScaling) -> dict[str, float]:
  return dict(zip(_SCALING_KEYS, dataclasses.astuple(scaling)))
