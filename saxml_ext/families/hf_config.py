"""Reads and writes config.json of Hugging Face models by tables of families.

A setting may stand in several places of a file. `_merged` and
`_rotary_settings` merge them as transformers 5 does. If another place has a different value, which
transformers would drop silently, the file is refused and both are named.
"""

from collections.abc import Iterable, Mapping
import dataclasses
import itertools
import json
import reprlib
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
# The names of the approximation of GELU by tanh in `hidden_act`, and of GELU.
GELU_TANH_NAMES = (
  'gelu_new',
  'gelu_pytorch_tanh',
  'gelu_fast',
  'gelu_python_tanh',
  'gelu_accurate',
)
GELU_NAMES = ('gelu', 'gelu_python')
# Settings of all families that change the result, and their accepted values.
_NONE = (None, {}, [])
_ACCEPTED = {
  'text_config': _NONE,
  'per_layer_config': _NONE,
  'dual_chunk_attention_config': _NONE,
  'is_encoder_decoder': (False,),
  'add_cross_attention': (False,),
}
# The places of the settings of rotary positions. transformers reads the first
# that is not empty, and takes what it lacks from the top level.
_ROTARY_PLACES = ('rope_scaling', 'rope_parameters')
_DEFAULTS = 'the default of transformers'
_LLAMA3, _LINEAR = 'llama3', 'linear'
# Up to max_position_embeddings, `dynamic` computes the same as `default`, and
# longer texts are refused.
_ROPE_TYPES = ('default', _LLAMA3, _LINEAR, 'dynamic')
# The entries of the fields of architecture.RotaryScaling.
_SCALING_KEYS = (
  'factor',
  'low_freq_factor',
  'high_freq_factor',
  'original_max_position_embeddings',
)
_SCALING_LIMIT = 1e9
# The fields that are not integers, and the upper bounds of their values.
_LIMITS = {'ln_epsilon': 1, 'rotary_share': 1.0000001, 'rotary_base': 1e18}
_INT_LIMIT = (1 << 31) - 1
_FULL = 'full_attention'


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
class Window:
  """The sliding window of a family, `sliding_window` in config.json.

  The engine has none. A window that covers the whole context, the maximum
  number of positions, changes nothing and is accepted.

  Attributes:
    default: The window of files without the entry; None for no window.
    switch: The key that must be true for the window to apply; '' if it always
      applies.
    layers: The default of `max_window_layers`, the first layer with the window;
      None if all layers have it.
  """

  default: int | None
  switch: str = ''
  layers: int | None = None


@dataclasses.dataclass(frozen=True)
class Table:
  """The names and the accepted values in config.json of one family.

  Attributes:
    model_class: The class of transformers, such as GPTJForCausalLM.
    keys: The key of each field of HFConfig that the family has. In place of
      rotary_dim it may be `rotary_share`, the share of a head that rotates.
      Without both, the whole head rotates.
    defaults: The values of fields that may be missing, which must be those of
      transformers. The default of hidden_dim is a multiple of the width.
    accepted: The values that other keys may have; the first is the default.
    rotary_names: The names that older files use at the top level for the
      entries of `rope_parameters`, where transformers 5 writes the settings of
      rotary positions. Empty if the family has no such settings.
    aliases: Further names of keys; transformers calls this an attribute_map.
    window: The sliding window; None if the family has none.
    model_type: The `model_type`; '' means the name of the family.
    variant_keys: The keys in `accepted` that choose one of the families with
      the same `model_type`.
  """

  model_class: str
  keys: Mapping[str, str]
  defaults: Mapping[str, float]
  accepted: Mapping[str, tuple[Any, ...]]
  rotary_names: Mapping[str, str] = dataclasses.field(default_factory=dict)
  aliases: Mapping[str, str] = dataclasses.field(default_factory=dict)
  window: Window | None = None
  model_type: str = ''
  variant_keys: tuple[str, ...] = ()

  def is_variant(self, document: Mapping[str, Any]) -> bool:
    """Returns True if a config.json has the values of this variant."""
    return all(
      _is_one_of(document.get(key, self.accepted[key][0]), self.accepted[key])
      for key in self.variant_keys
    )


class _Entries:
  """Typed access to the entries of one config.json."""

  def __init__(self, path: str, document: Mapping[str, Any]):
    self._path = path
    self._document = document

  def get(self, key: str, default: Any = None) -> Any:
    """Returns an entry, or the default if it is missing or null."""
    value = self._document.get(key)
    return default if value is None else value

  def integer(self, key: str, default: float | None, null: Any = None) -> int:
    """Returns an integer; `null` stands for null, `default` for no entry."""
    value = self._document.get(key, default)
    value = null if value is None else value
    if type(value) is not int or not 0 < value <= _INT_LIMIT:
      raise self.error(key, value, f'an integer between 1 and {_INT_LIMIT}')
    return value

  def number(self, key: str, default: float | None, below: float) -> float:
    value = self._document.get(key, default)
    if type(value) not in (int, float) or not 0 < value < below:
      raise self.error(key, value, f'a number above 0 and below {below:g}')
    return float(value)

  def check(self, key: str, accepted: tuple[Any, ...]) -> None:
    value = self.get(key, accepted[0])
    if not _is_one_of(value, accepted):
      listed = [_text(v) for v in accepted if v not in ({}, [])]
      several = 'one of ' if len(listed) > 1 else ''
      raise self.error(key, value, several + ', '.join(listed))

  def tokens(self, key: str, default: int | None = None) -> tuple[int, ...]:
    """Returns the ids of an entry that is an id, a list of ids or null.

    The id -1 stands for no token, as in files of LLaMA 1 and Vicuna.
    """
    value = self._document.get(key, default)
    ids = tuple(value) if isinstance(value, list) else (value,)
    if ids in ((None,), (-1,)):
      return ()
    if any(type(id_) is not int or not 0 <= id_ <= _INT_LIMIT for id_ in ids):
      raise self.error(
        key, value, f'the id of a token, from 0 to {_INT_LIMIT}, or null'
      )
    return ids

  def error(self, key: str, value: Any, expected: str) -> Exception:
    text = _text(value) if key in self._document else 'missing'
    return errors.CheckpointError(
      f'{self._path}: {key} is {text}. Expected {expected}.'
    )


def _text(value: Any) -> str:
  """Returns a short form of a value for messages."""
  if isinstance(value, dict | list):
    return reprlib.repr(value)
  text = json.dumps(value)
  return text if len(text) <= 100 else f'{text[:97]}...'


def _is_one_of(value: Any, accepted: tuple[Any, ...]) -> bool:
  """Returns True if a value is accepted; 0 and 1 are no booleans."""
  return any(
    value == each and isinstance(value, bool) == isinstance(each, bool)
    for each in accepted
  )


def read(path: str, document: Mapping[str, Any], table: Table) -> HFConfig:
  """Returns the sizes of a model from the contents of its config.json.

  Args:
    path: The path of the file, for messages.
    document: The contents of the file.
    table: The names of the entries in the family's files.

  Raises:
    errors.CheckpointError: An entry is missing, has another type or is not
      accepted, two entries contradict each other, or the sizes do not fit
      together.
  """
  names = ((n, key) for a, key in table.aliases.items() for n in (a, key))
  named = _merged(path, ((n, key, document.get(n)) for n, key in names))
  document = {**document, **named}
  document |= _rotary_settings(path, document, table)
  entries = _Entries(path, document)
  for key, accepted in (_ACCEPTED | dict(table.accepted)).items():
    entries.check(key, accepted)
  values: dict[str, Any] = {}
  for field, key in table.keys.items():
    default = table.defaults.get(field)
    if field in _LIMITS:
      values[field] = entries.number(key, default, _LIMITS[field])
    elif field == 'num_kv_heads':
      heads = values['num_heads']
      values[field] = entries.integer(key, default or heads, null=heads)
    elif field == 'hidden_dim' and default:
      multiple = values['model_dim'] * default
      values[field] = entries.integer(key, multiple, null=multiple)
    else:
      values[field] = entries.integer(key, default)
  share = values.pop('rotary_share', 1.0)
  head_dim = values['model_dim'] // values['num_heads']
  values.setdefault('rotary_dim', int(share * head_dim))
  entries.check('head_dim', (head_dim,))
  if table.window:
    layers, positions = values['num_layers'], values['max_positions']
    _check_window(entries, table.window, layers, positions)
  if table.rotary_names:
    values['rotary_scaling'] = _scaling(path, entries, values['max_positions'])
  ids = {
    field: entries.tokens(_COMMON[field], table.defaults.get(field))
    for field in ('bos_id', 'eos_id', 'pad_id')
  }
  entries.check(_COMMON['tied_embeddings'], (False, True))
  values['vocab_size'] = entries.integer(_COMMON['vocab_size'], None)
  try:
    return HFConfig(
      **values,
      **{field: next(iter(tokens), None) for field, tokens in ids.items()},
      tied_embeddings=entries.get(_COMMON['tied_embeddings'], False),
      stop_ids=ids['eos_id'],
    )
  except errors.CheckpointError as e:
    raise errors.CheckpointError(f'{path}: {e}') from e


def _merged(
  path: str, values: Iterable[tuple[str, str, Any]]
) -> dict[str, Any]:
  """Returns the first value of each setting that is not null.

  Args:
    path: The path of the file, for messages.
    values: Triples of the place, the setting and its value there.

  Raises:
    errors.CheckpointError: A later place has another value. Only _DEFAULTS may
      differ.
  """
  merged: dict[str, tuple[str, Any]] = {}
  for place, key, value in values:
    if value is None:
      continue
    first, used = merged.setdefault(key, (place, value))
    if place != _DEFAULTS and not _is_one_of(value, (used,)):
      raise errors.CheckpointError(
        f'{path} has two values of {key}: {_text(used)} ({first}) and'
        f' {_text(value)} ({place}). transformers uses the first. Correct it,'
        ' and remove the other.'
      )
  return {key: value for key, (_, value) in merged.items()}


def _rotary_settings(
  path: str, document: Mapping[str, Any], table: Table
) -> dict[str, Any]:
  """Returns the settings of rotary positions, with the names of transformers 5.

  Raises:
    errors.CheckpointError: A place does not have an object, or places have
      different values.
  """
  entries = _Entries(path, document)
  places = []
  for place in _ROTARY_PLACES:
    values = document.get(place)
    if not table.rotary_names:
      entries.check(place, _NONE)
    elif not isinstance(values, dict | None):
      raise entries.error(place, values, 'an object with a rope_type, or null')
    elif values:
      kinds = (('rope_type', values.get(key)) for key in ('rope_type', 'type'))
      places.append([(place, k, v) for k, v in (*kinds, *values.items())])
  names = {_SCALING_KEYS[-1]: _SCALING_KEYS[-1], **table.rotary_names}
  defaults = {
    'rope_type': _ROPE_TYPES[0],
    _SCALING_KEYS[-1]: document.get(table.keys['max_positions']),
    **{
      key: table.defaults.get(field)
      for field, key in table.keys.items()
      if key in names
    },
  }
  return _merged(
    path,
    (
      *itertools.chain(*places[:1]),
      *((name, key, document.get(name)) for key, name in names.items()),
      *((_DEFAULTS, key, value) for key, value in defaults.items()),
      *itertools.chain(*places[1:]),
      *((key, key, document.get(key)) for key in names),
    ),
  )


def _check_window(
  entries: _Entries, window: Window, layers: int, positions: int
) -> None:
  """Raises an error if a sliding window would hide a part of the context."""
  applies = not window.switch or entries.get(window.switch, False)
  if window.layers is not None:
    first = entries.integer('max_window_layers', window.layers, null=layers)
    applies = applies and first < layers
  if (types := entries.get('layer_types')) is not None:
    applies = types != [_FULL] * layers
  size = entries.integer('sliding_window', window.default, null=_INT_LIMIT)
  if applies and size < positions:
    raise entries.error(
      'sliding_window',
      size,
      f'null or at least {positions}, the number of positions, because the'
      f' engine has no sliding window. If {size} positions are enough, set the'
      f' number of positions to {size}',
    )


def _scaling(
  path: str, entries: _Entries, max_positions: int
) -> architecture.RotaryScaling | None:
  """Returns the scaling of rotary positions, or None for no scaling."""
  entries.check('rope_type', _ROPE_TYPES)
  kind = entries.get('rope_type')
  if kind == _ROPE_TYPES[0]:
    return None
  *keys, length = _SCALING_KEYS
  try:
    if kind != _LLAMA3:
      factor = entries.number(keys[0], None, _SCALING_LIMIT)
      return linear(factor) if kind == _LINEAR else None
    factor, low, high = (entries.number(k, None, _SCALING_LIMIT) for k in keys)
    return architecture.RotaryScaling(
      factor, low, high, entries.integer(length, max_positions)
    )
  except errors.CheckpointError:
    raise
  except ValueError as e:
    raise errors.CheckpointError(f'{path}: {e}') from e


def linear(factor: float) -> architecture.RotaryScaling:
  """Returns a scaling of all positions, as in rope_type "linear".

  No wavelength is below 2 pi. So all are long for an original length of 1.
  """
  return architecture.RotaryScaling(factor, 1.0, 4.0, 1)


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
    'model_type': table.model_type or name,
    # Like in transformers, entries that are null are omitted.
    **{
      key: accepted[0]
      for key, accepted in table.accepted.items()
      if accepted[0] is not None
    },
    **{table.rotary_names.get(k, k): values[f] for f, k in keys.items()},
    **(
      {'rope_scaling': _scaling_entries(config.rotary_scaling)}
      if config.rotary_scaling
      else {}
    ),
  }


def _scaling_entries(scaling: architecture.RotaryScaling) -> dict[str, Any]:
  if scaling == linear(scaling.factor):
    return {'rope_type': _LINEAR, 'factor': scaling.factor}
  fields = zip(_SCALING_KEYS, dataclasses.astuple(scaling))
  return {'rope_type': _LLAMA3, **dict(fields)}
