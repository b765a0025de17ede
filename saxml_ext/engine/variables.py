"""The variables of a GPT-J: names, shapes and uses, in one table.

Whoever reads, writes, splits, quantizes or makes up weights reads this table.
A row names a variable as a PAX checkpoint has it, the logical axes of its dims
(see `logical.py`), the axes that a product with it sums over, and where the
engine keeps it. Another family of models is another `Table`.
"""

from collections.abc import Iterator, Mapping
import dataclasses
import functools
import re
from typing import Any, Protocol

# What the names of all variables begin with.
PREFIX = 'params.lm'
# What praxis adds to the name of an int8 matrix to name its scale.
SCALE_SUFFIX = '_quantized_scale'

_LAYER = re.compile(r'(?:.*\.)?x_layers_(\d+)\.')
_INDEX = '{layer}'


class Sizes(Protocol):
  """What the shapes of a model's variables depend on."""

  @property
  def num_layers(self) -> int:
    """Of the transformer."""

  @property
  def model_dim(self) -> int:
    """Size of a hidden state, D."""

  @property
  def num_heads(self) -> int:
    """Of attention, N."""

  @property
  def head_dim(self) -> int:
    """Size of a head, H."""

  @property
  def hidden_dim(self) -> int:
    """Size between the two matrices of a feed-forward block, F."""

  @property
  def vocab_size(self) -> int:
    """Tokens that the embedding has, V."""


@dataclasses.dataclass(frozen=True)
class Variable:
  """A variable, or the variables of this kind that all layers have.

  Attributes:
    name: below PREFIX; `{layer}` stands for the index of the layer.
    field: its place in `weights.Weights`, for example `layers.norm.scale`.
    axes: logical name of each dim, as the checkpoint stores it.
    contracted: axes that a product with it sums over. Only variables that are
      multiplied with have any, and only these can be quantized.
    kept: its axes in the order in which the engine keeps it in float; empty: as
      they are stored.
    inputs: field of `model.Taps` that holds what a layer multiplies it with.
  """

  name: str
  field: str
  axes: tuple[str, ...]
  contracted: tuple[str, ...] = ()
  kept: tuple[str, ...] = ()
  inputs: str | None = None

  @property
  def per_layer(self) -> bool:
    return _INDEX in self.name

  @property
  def is_matrix(self) -> bool:
    """Whether products are made with it."""
    return bool(self.contracted)

  @property
  def is_norm_scale(self) -> bool:
    return self.field.endswith('norm.scale')

  @property
  def kept_axes(self) -> tuple[str, ...]:
    return self.kept or self.axes

  @property
  def outputs(self) -> tuple[str, ...]:
    """Axes of its scale once the engine has quantized it."""
    return tuple(a for a in self.kept_axes if a not in self.contracted)

  @property
  def contracted_dims(self) -> tuple[int, ...]:
    """Dims, as stored, that a product sums over."""
    return tuple(i for i, a in enumerate(self.axes) if a in self.contracted)

  def below_prefix(self, layer: int = 0) -> str:
    """Its name without PREFIX."""
    return self.name.replace(_INDEX, str(layer))

  def path(self, layer: int = 0) -> str:
    """Its whole name."""
    return f'{PREFIX}.{self.below_prefix(layer)}'

  def shape(self, model: Sizes) -> tuple[int, ...]:
    """Its shape in the checkpoint of a model."""
    sizes = axis_sizes(model)
    return tuple(sizes[axis] for axis in self.axes)

  @functools.cached_property
  def pattern(self) -> re.Pattern[str]:
    """Matches its name in any layer, with any prefix."""
    return re.compile(
      r'(?:.*\.)?' + r'\d+'.join(map(re.escape, self.name.split(_INDEX)))
    )


@dataclasses.dataclass(frozen=True)
class Table:
  """The variables of a family of models, in the order of a checkpoint."""

  rows: tuple[Variable, ...]

  def __iter__(self) -> Iterator[Variable]:
    return iter(self.rows)

  @functools.cached_property
  def by_field(self) -> dict[str, Variable]:
    return {row.field: row for row in self.rows}

  def named(self, name: str) -> Variable | None:
    """The row of a variable `name`, whatever its prefix; None: there is none."""
    return next((r for r in self.rows if r.pattern.fullmatch(name)), None)

  def of_model(self, model: Sizes) -> list[tuple[Variable, int]]:
    """Every variable of a model: its row, and its layer or 0.

    The layers come one after the other, where the first row of a layer stands.
    """
    layer_rows = [row for row in self.rows if row.per_layer]
    result = []
    for row in self.rows:
      if not row.per_layer:
        result.append((row, 0))
      elif row is layer_rows[0]:
        result += [(r, i) for i in range(model.num_layers) for r in layer_rows]
    return result


def axis_sizes(model: Sizes) -> dict[str, int]:
  """The size of each logical axis of weights."""
  return {
    'layers': model.num_layers,
    'embed': model.model_dim,
    'heads': model.num_heads,
    'head_dim': model.head_dim,
    'three': 3,
    'hidden': model.hidden_dim,
    'vocab': model.vocab_size,
  }


def layer_prefix(layer: int) -> str:
  """What the names of a layer's variables begin with."""
  return f'{PREFIX}.transformer.x_layers_{layer}.'


def layer_of(name: str) -> int | None:
  """The layer that a variable belongs to; None: to none."""
  match = _LAYER.match(name)
  return int(match[1]) if match else None


def find(variables: Mapping[str, Any], suffix: str) -> str:
  """The one name that is `suffix`, or ends in it after a dot.

  Raises:
    ValueError: no name does, or several do.
  """
  names = [n for n in variables if n == suffix or n.endswith('.' + suffix)]
  if len(names) != 1:
    raise ValueError(
      f'{len(names)} variables end in {suffix!r}, expected one; is this a'
      ' GPT-J checkpoint written by convert_gptj_ckpt?'
    )
  return names[0]


def _layer(name: str, field: str, *axes: str, **more) -> Variable:
  return Variable(
    f'transformer.x_layers_{_INDEX}.{name}', f'layers.{field}', axes, **more
  )


GPTJ = Table(
  (
    Variable('embedding_lookup.emb_var', 'embedding', ('vocab', 'embed')),
    _layer('layer_norm.scale', 'norm.scale', 'embed'),
    _layer('layer_norm.bias', 'norm.bias', 'embed'),
    _layer(
      'self_attention.combined_qkv.w',
      'qkv',
      *('three', 'embed', 'heads', 'head_dim'),
      contracted=('embed',),
      kept=('heads', 'three', 'head_dim', 'embed'),
      inputs='norm',
    ),
    _layer(
      'self_attention.post.w',
      'post',
      *('embed', 'heads', 'head_dim'),
      contracted=('heads', 'head_dim'),
      kept=('heads', 'head_dim', 'embed'),
      inputs='mixed',
    ),
    _layer(
      'ff_layer.ffn_layer1.linear.w',
      'up',
      *('embed', 'hidden'),
      contracted=('embed',),
      inputs='norm',
    ),
    _layer('ff_layer.ffn_layer1.bias.b', 'up_bias', 'hidden'),
    _layer(
      'ff_layer.ffn_layer2.linear.w',
      'down',
      *('hidden', 'embed'),
      contracted=('hidden',),
      inputs='hidden',
    ),
    _layer('ff_layer.ffn_layer2.bias.b', 'down_bias', 'embed'),
    Variable('final_ln.scale', 'final_norm.scale', ('embed',)),
    Variable('final_ln.bias', 'final_norm.bias', ('embed',)),
    Variable(
      'softmax.logits_ffn.linear.w',
      'head',
      ('embed', 'vocab'),
      contracted=('embed',),
    ),
    Variable('softmax.logits_ffn.bias.b', 'head_bias', ('vocab',)),
  )
)
