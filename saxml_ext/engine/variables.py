"""Lists the variables of a model: names, shapes and uses, in one table.

All code that reads, writes, splits, quantizes or generates weights uses this
table. A row has the name of a variable in a PAX checkpoint, and the logical
axes of its dimensions (see `logical.py`). It also has the axes that a product
sums over, and the field in which the engine keeps the variable. praxis uses the
same names in all families, so the variables of a family follow from its
`architecture.Architecture`.

praxis can run one layer's code repeatedly (USE_REPEATED_LAYER). Then the layers
share their variables. These are called `x_layers_0` below `repeat.sub` and have
a leading dimension [L].
"""

from collections.abc import Iterable, Iterator, Mapping
import dataclasses
import functools
import re
from typing import Any

from saxml_ext.engine import architecture as architecture_lib
from saxml_ext.engine import sizes as sizes_lib

# The prefix of the names of all variables.
PREFIX = 'params.lm'
# The suffix that praxis adds to the name of an int8 matrix for its scale.
SCALE_SUFFIX = '_quantized_scale'

_LAYER = re.compile(r'(?:.*\.)?x_layers_(\d+)\.')
_INDEX = '{layer}'
_OWN, _SHARED = (
  f'transformer.x_layers_{_INDEX}.',
  'transformer.repeat.sub.x_layers_0.',
)


@dataclasses.dataclass(frozen=True)
class Variable:
  """A variable, or the variables of this kind in all layers.

  Attributes:
    name: The name below PREFIX; `{layer}` stands for the index of the layer.
    field: The field of `weights.Weights`, for example `layers.norm.scale`.
    axes: The logical name of each dimension, as the checkpoint stores it.
    contracted: The axes that a product sums over. Only variables that are
      factors of products have any, and only these can be quantized.
    kept: The axes in the order in which the engine keeps them in float. Empty
      stands for the order of the checkpoint.
    inputs: The field of `model.Taps` with the other factor of the layer's
      product, or None.
    parts: The variables that a checkpoint may have instead. If they have the
      same shape, this variable is their stack along a new first dimension.
  """

  name: str
  field: str
  axes: tuple[str, ...]
  contracted: tuple[str, ...] = ()
  kept: tuple[str, ...] = ()
  inputs: str | None = None
  parts: tuple['Variable', ...] = ()

  @property
  def per_layer(self) -> bool:
    return _INDEX in self.name

  @property
  def is_matrix(self) -> bool:
    """True if it is a factor of products."""
    return bool(self.contracted)

  @property
  def is_norm_scale(self) -> bool:
    return self.field.endswith('norm.scale')

  @property
  def kept_axes(self) -> tuple[str, ...]:
    return self.kept or self.axes

  @property
  def outputs(self) -> tuple[str, ...]:
    """The axes of its scale after the engine has quantized it."""
    return tuple(a for a in self.kept_axes if a not in self.contracted)

  @property
  def contracted_dims(self) -> tuple[int, ...]:
    """The dimensions, as stored, that a product sums over."""
    return tuple(i for i, a in enumerate(self.axes) if a in self.contracted)

  def below_prefix(self, layer: int = 0, repeated: bool = False) -> str:
    """Returns the name without PREFIX, in the shared form if `repeated`."""
    if repeated:
      return self.name.replace(_OWN, _SHARED)
    return self.name.replace(_INDEX, str(layer))

  def stored_axes(self, repeated: bool = False) -> tuple[str, ...]:
    """Returns the axes in a checkpoint, including the leading shared one."""
    return ('layers', *self.axes) if repeated and self.per_layer else self.axes

  def path(self, layer: int = 0) -> str:
    """Returns the full name."""
    return f'{PREFIX}.{self.below_prefix(layer)}'

  def shape(self, model: sizes_lib.Sizes) -> tuple[int, ...]:
    """Returns the shape in the checkpoint of a model."""
    sizes = axis_sizes(model)
    return tuple(sizes[axis] for axis in self.axes)

  @functools.cached_property
  def pattern(self) -> re.Pattern[str]:
    """A pattern of the name in any layer, with any prefix, repeated or not."""
    own = r'\d+'.join(map(re.escape, self.name.split(_INDEX)))
    shared = re.escape(self.below_prefix(repeated=True))
    return re.compile(rf'(?:.*\.)?(?:{own}|{shared})')


@dataclasses.dataclass(frozen=True)
class Table:
  """The variables of a family of models, in the order of a checkpoint.

  Attributes:
    rows: The variables as the engine keeps them.
  """

  rows: tuple[Variable, ...]

  def __iter__(self) -> Iterator[Variable]:
    return iter(self.rows)

  @functools.cached_property
  def by_field(self) -> dict[str, Variable]:
    return {row.field: row for row in self.rows}

  def named(self, name: str) -> Variable | None:
    """Returns the row of a variable with any prefix, or None."""
    rows = (row for whole in self.rows for row in (whole, *whole.parts))
    return next((row for row in rows if row.pattern.fullmatch(name)), None)

  def stored(self, joined: bool) -> tuple[Variable, ...]:
    """Returns the variables of a checkpoint.

    Args:
      joined: True if it has the variables with parts, False if it has the
        parts.
    """
    if joined:
      return self.rows
    return tuple(row for whole in self.rows for row in whole.parts or (whole,))

  def entries(
    self, model: sizes_lib.Sizes, joined: bool | None = None
  ) -> list[tuple[Variable, int]]:
    """Returns every variable of a checkpoint: its row, and its layer or 0.

    The layers follow each other, at the position of the first row of a layer.

    Args:
      model: The sizes of the model.
      joined: The form of queries, keys and values, as in `stored`. None stands
        for that of written checkpoints, which is joined unless queries share
        keys.
    """
    if joined is None:
      joined = model.num_heads == model.kv_heads
    rows = self.stored(joined)
    layer_rows = [row for row in rows if row.per_layer]
    result = []
    for row in rows:
      if not row.per_layer:
        result.append((row, 0))
      elif row is layer_rows[0]:
        result += [(r, i) for i in range(model.num_layers) for r in layer_rows]
    return result


def axis_sizes(model: sizes_lib.Sizes) -> dict[str, int]:
  """Returns the size of each logical axis of weights."""
  return {
    'layers': model.num_layers,
    'embed': model.model_dim,
    'heads': model.num_heads,
    'kv_heads': model.kv_heads,
    # The queries that share a key and a value, plus these two.
    'group': model.num_heads // model.kv_heads + 2,
    'head_dim': model.head_dim,
    'queries': model.num_heads * model.head_dim,
    'keys': model.kv_heads * model.head_dim,
    'hidden': model.hidden_dim,
    'vocab': model.vocab_size,
  }


def is_repeated(names: Iterable[str]) -> bool:
  """Returns True if the layers of a checkpoint share their variables."""
  return any(f'.{_SHARED}' in f'.{name}' for name in names)


def is_joined(names: Iterable[str]) -> bool:
  """Returns True if a single variable has queries, keys and values."""
  return any('.combined_qkv.' in name for name in names)


def layer_of(name: str) -> int | None:
  """Returns the layer of a variable, or None outside of layers."""
  match = _LAYER.match(name)
  return int(match[1]) if match else None


def count_layers(names: Iterable[str]) -> int:
  """Returns the number of layers that have their own variables.

  Raises:
    ValueError: The layers are not numbered from 0 on.
  """
  layers = {layer for layer in map(layer_of, names) if layer is not None}
  if layers != set(range(len(layers))) or not layers:
    raise ValueError(
      f'the layers are {sorted(layers)}, not 0, 1, and so on. The checkpoint'
      ' needs variables named `...x_layers_<i>....` for each layer.'
    )
  return len(layers)


def find(variables: Mapping[str, Any], suffix: str) -> str:
  """Returns the only name that is `suffix`, or ends in it after a dot.

  Raises:
    ValueError: No name matches, or several do.
  """
  ending = f'.{suffix}'
  names = [n for n in variables if n == suffix or n.endswith(ending)]
  if len(names) != 1:
    raise ValueError(
      f'{len(names)} variables end in {suffix!r}, not one. Use a checkpoint of'
      ' this kind of model, such as a GPT-J from convert_gptj_ckpt.'
    )
  return names[0]


def _row(
  name: str,
  field: str,
  axes: str,
  contracted: str = '',
  kept: str = '',
  **more: Any,
) -> Variable:
  """Returns a variable whose axes are given as space-separated words."""
  return Variable(
    name,
    field,
    tuple(axes.split()),
    tuple(contracted.split()),
    tuple(kept.split()),
    **more,
  )


def _layer(
  name: str, field: str, axes: str, contracted: str = '', **more: Any
) -> Variable:
  return _row(f'{_OWN}{name}', f'layers.{field}', axes, contracted, **more)


def _norm_parts(architecture: architecture_lib.Architecture) -> tuple[str, ...]:
  has_bias = architecture.norm == architecture_lib.LAYER_NORM
  return ('scale', 'bias') if has_bias else ('scale',)


def _norm(
  architecture: architecture_lib.Architecture, name: str, field: str
) -> list[Variable]:
  return [
    _layer(f'{name}.{part}', f'{field}.{part}', 'embed')
    for part in _norm_parts(architecture)
  ]


@functools.cache
def table_of(architecture: architecture_lib.Architecture) -> Table:
  """Returns the variables of a family of models."""
  embedding = _row('embedding_lookup.emb_var', 'embedding', 'vocab embed')
  heads = [_row('softmax.logits_ffn.linear.w', 'head', 'embed vocab', 'embed')]
  if architecture.tied_head:
    name = heads.pop().name
    embedding = _row(name, 'embedding', 'embed vocab', kept='vocab embed')
  attention = _attention(architecture.biases)
  if architecture.query_scale:
    name = 'self_attention.per_dim_scale.per_dim_scale'
    attention.append(_layer(name, 'query_scale', 'head_dim'))
  if architecture.qk_norm is not None:
    by_head = architecture.qk_norm == architecture_lib.PER_HEAD
    attention += [
      _layer(f'self_attention.{part}_norm.scale', f'{part}_norm.scale', axis)
      for part, axis in (
        ('query', 'head_dim' if by_head else 'queries'),
        ('key', 'head_dim' if by_head else 'keys'),
      )
    ]
  ff_norm = []
  if architecture.residual != architecture_lib.SHARED:
    ff_norm = _norm(architecture, 'ff_layer.layer_norm', 'ff_norm')
  if architecture_lib.HEAD in architecture.biases:
    heads.append(_row('softmax.logits_ffn.bias.b', 'head_bias', 'vocab'))
  return Table(
    (
      embedding,
      *_norm(architecture, 'layer_norm', 'norm'),
      *attention,
      *ff_norm,
      *_feed_forward(architecture),
      *(
        _row(f'final_ln.{part}', f'final_norm.{part}', 'embed')
        for part in _norm_parts(architecture)
      ),
      *heads,
    )
  )


# Queries, keys and values, with the axis of the heads of each.
_PARTS = (('query', 'heads'), ('key', 'kv_heads'), ('value', 'kv_heads'))


def _attention(biases: tuple[str, ...]) -> list[Variable]:
  parts = [
    _layer(
      f'self_attention.{part}.w',
      part,
      f'embed {heads} head_dim',
      contracted='embed',
      kept=f'{heads} head_dim embed',
      inputs='norm',
    )
    for part, heads in _PARTS
  ]
  qkv = _layer(
    'self_attention.combined_qkv.w',
    'qkv',
    'group embed kv_heads head_dim',
    contracted='embed',
    kept='kv_heads group head_dim embed',
    inputs='norm',
    parts=tuple(parts),
  )
  qkv_bias = _layer(
    'self_attention.combined_qkv.b',
    'qkv_bias',
    'group kv_heads head_dim',
    kept='kv_heads group head_dim',
    parts=tuple(
      _layer(f'self_attention.{part}.b', f'{part}_bias', f'{heads} head_dim')
      for part, heads in _PARTS
    ),
  )
  post = _layer(
    'self_attention.post.w',
    'post',
    'embed heads head_dim',
    contracted='heads head_dim',
    kept='heads head_dim embed',
    inputs='mixed',
  )
  rows = [qkv, post]
  if architecture_lib.QKV in biases:
    rows.insert(1, qkv_bias)
  if architecture_lib.POST in biases:
    rows.append(_layer('self_attention.post.b', 'post_bias', 'embed'))
  return rows


def _feed_forward(
  architecture: architecture_lib.Architecture,
) -> list[Variable]:
  name = 'ff_layer.ffn_layer'
  up, down = ('embed hidden', 'embed'), ('down', 'hidden embed', 'hidden')
  gate = _layer(f'{name}1_gate.linear.w', 'gate', *up, inputs='fed')
  rows = [
    *([gate] * architecture.gated),
    _layer(f'{name}1.linear.w', 'up', *up, inputs='fed'),
    _layer(f'{name}1.bias.b', 'up_bias', 'hidden'),
    _layer(f'{name}2.linear.w', *down, inputs='hidden'),
    _layer(f'{name}2.bias.b', 'down_bias', 'embed'),
  ]
  if architecture_lib.FEED_FORWARD in architecture.biases:
    return rows
  return [row for row in rows if row.is_matrix]


GPTJ = table_of(architecture_lib.GPTJ)
LM_CLOUD = table_of(architecture_lib.LM_CLOUD)

# The variables of all families. All families keep a field in the same form.
_ALL = architecture_lib.Architecture(
  biases=architecture_lib.BIASES, gated=True, qk_norm=architecture_lib.PER_HEAD
)
BY_FIELD: Mapping[str, Variable] = LM_CLOUD.by_field | table_of(_ALL).by_field
