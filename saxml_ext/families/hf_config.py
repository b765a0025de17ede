"""Reads and writes config.json of Hugging Face models by tables of families.

A setting may stand in several places of a file. `hf_entries` and `hf_rotary`
merge them as transformers 5 does. If another place has a different value, which
transformers would drop silently, the file is refused and both are named.
"""

from collections.abc import Mapping
import dataclasses
from typing import Any

from saxml_ext.engine import architecture
from saxml_ext.families import hf_details
from saxml_ext.families import hf_entries
from saxml_ext.families import hf_rotary
from saxml_ext.pax import errors

# The keys that config.json of every family has, by field of HFConfig.
_COMMON = {
  'vocab_size': 'vocab_size',
  'tied_embeddings': 'tie_word_embeddings',
  'bos_id': 'bos_token_id',
  'eos_id': 'eos_token_id',
  'pad_id': 'pad_token_id',
}
# The names of the approximation of GELU by tanh.
GELU_TANH_NAMES = ('gelu_new', 'gelu_pytorch_tanh', 'gelu_fast')
# Settings of all families that change the result, and their accepted values.
_ACCEPTED = {
  'text_config': hf_entries.NONE,
  'per_layer_config': hf_entries.NONE,
  'dual_chunk_attention_config': hf_entries.NONE,
  'is_causal': (True,),
  'is_encoder_decoder': (False,),
  'add_cross_attention': (False,),
  'attn_logit_softcapping': (None,),
  'final_logit_softcapping': (None,),
  'num_local_experts': (None, 0, 1),
}
# The value of `layer_types` for a layer without a window.
_FULL = 'full_attention'
# The fields that are not integers, and the upper bounds of their values.
_LIMITS = {'ln_epsilon': 1, 'rotary_share': 1.0000001, 'rotary_base': 1e18}


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
    own_head_dim: The width of a head; 0 means model_dim / num_heads.
    details: Further numbers of the model.
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
  own_head_dim: int = 0
  details: architecture.Details = architecture.Details()

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
    if not self.own_head_dim and self.model_dim % self.num_heads:
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
        f' {self.head_dim}, the width of a head.'
      )

  @property
  def kv_heads(self) -> int:
    """The number of heads of keys and values."""
    return self.num_kv_heads or self.num_heads

  @property
  def head_dim(self) -> int:
    return self.own_head_dim or self.model_dim // self.num_heads


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
      0 if the family has no such entry.
  """

  default: int | None
  switch: str = ''
  layers: int = 0


@dataclasses.dataclass(frozen=True)
class Table:
  """The names and the accepted values in config.json of one family.

  Attributes:
    model_class: The class of transformers, such as GPTJForCausalLM.
    keys: The key of each field of HFConfig that the family has. In place of
      rotary_dim it may be `rotary_share`, the share of a head that rotates.
      Without both, the whole head rotates.
    defaults: The values of fields that may be missing, which must be those of
      transformers. The default of hidden_dim is a multiple of the width. The
      entry original_length is the default of the length before an extension.
    accepted: The values that other keys may have; the first is the default.
    rotary_names: The names that older files use at the top level for the
      entries of `rope_parameters`, where transformers 5 writes the settings of
      rotary positions. Empty if the family has no such settings.
    aliases: Further names of keys; transformers calls this an attribute_map.
    window: The sliding window; None if the family has none.
    details: The names of numbers that few families have.
    rope_types: The accepted values of `rope_type`.
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
  details: hf_details.Names = hf_details.Names()
  rope_types: tuple[str, ...] = hf_rotary.TYPES
  model_type: str = ''
  variant_keys: tuple[str, ...] = ()

  def is_variant(self, document: Mapping[str, Any]) -> bool:
    """Returns True if a config.json has the values of this variant."""
    accepted = {key: self.accepted[key] for key in self.variant_keys}
    return all(
      hf_entries.is_one_of(document.get(key, values[0]), values)
      for key, values in accepted.items()
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
  triples = ((name, key, document.get(name)) for name, key in names)
  document = {**document, **hf_entries.merge(path, triples)}
  defaults = {key: table.defaults.get(f) for f, key in table.keys.items()}
  length = table.keys['max_positions']
  defaults[hf_rotary.LENGTH] = document.get(length, defaults[length])
  if original := table.defaults.get('original_length'):
    document.setdefault(hf_rotary.LENGTH, original)
  document |= hf_rotary.merge(path, document, table.rotary_names, defaults)
  entries = hf_entries.Entries(path, document)
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
    elif field == 'own_head_dim':
      usual = values['model_dim'] // values['num_heads']
      values[field] = entries.integer(key, default or usual, null=usual)
    elif field == 'hidden_dim' and default:
      multiple = values['model_dim'] * default
      values[field] = entries.integer(key, multiple, null=multiple)
    else:
      values[field] = entries.integer(key, default)
  share = values.pop('rotary_share', 1.0)
  head_dim = values['model_dim'] // values['num_heads']
  own = values.get('own_head_dim', head_dim)
  values.setdefault('rotary_dim', int(share * own))
  entries.check('head_dim', (own,))
  # Equal models have equal configs.
  values['own_head_dim'] = 0 if own == head_dim else own
  if table.rotary_names:
    values |= hf_rotary.scaling(path, entries, values, table.rope_types)
  _check_window(entries, table.window, values)
  values['details'] = hf_details.read(
    entries, table.details, values['num_layers'], values['model_dim'], own
  )
  for field in ('bos_id', 'pad_id', 'eos_id'):
    ids = entries.tokens(_COMMON[field], table.defaults.get(field))
    values |= {field: next(iter(ids), None), 'stop_ids': ids}
  values['vocab_size'] = entries.integer(_COMMON['vocab_size'], None)
  ties = bool(table.defaults.get('tied_embeddings'))
  tied = entries.check(_COMMON['tied_embeddings'], (ties, not ties))
  try:
    return HFConfig(**values, tied_embeddings=tied)
  except errors.CheckpointError as e:
    raise errors.CheckpointError(f'{path}: {e}') from e


def _check_window(
  entries: hf_entries.Entries, window: Window | None, values: Mapping[str, int]
) -> None:
  """Raises an error if a sliding window would hide a part of the context."""
  layers, positions = values['num_layers'], values['max_positions']
  types = entries.get('layer_types')
  # A file may claim any number of layers, so no list of this length is made.
  is_full = types is None or (
    isinstance(types, list)
    and len(types) == layers
    and all(kind == _FULL for kind in types)
  )
  if window is None:
    if not is_full:
      raise entries.error('layer_types', f'null, or {layers} times "{_FULL}"')
    return
  applies = not window.switch or entries.get(window.switch, False)
  if window.layers:
    first = entries.integer('max_window_layers', window.layers, least=0)
    applies = applies and first < layers
  if types is not None:
    applies = not is_full
  none = hf_entries.INT_LIMIT
  size = entries.integer('sliding_window', window.default, null=none)
  if applies and size < positions:
    raise entries.error(
      'sliding_window',
      f'null or at least {positions}, the number of positions, because the'
      f' engine has no sliding window. If {size} positions are enough, set the'
      f' number of positions to {size}',
    )


def add_generation(
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
  ids = hf_entries.Entries(path, document).tokens(_COMMON['eos_id'])
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
    'own_head_dim': config.head_dim,
  }
  if len(config.stop_ids) > 1:
    values['eos_id'] = list(config.stop_ids)
  keys = {**table.keys, **_COMMON}
  window = table.window
  applies = window and not window.switch and window.default
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
      {'sliding_window': None}
      if applies and applies < config.max_positions
      else {}
    ),
    **hf_details.document(
      config.details, table.details, config.num_layers, config.head_dim
    ),
    **(
      hf_rotary.document(config.rotary_scaling, config.max_positions)
      if config.rotary_scaling
      else {}
    ),
  }
