"""Maps the PAX variables of a model to the Hugging Face tensors they come from.

`engine/variables.py` defines the names and shapes on the PAX side. The model's
`family.Family` defines the names of tensors. The table shows those of GPT-J.

Letters in shapes: V vocabulary, D model dimension, N heads, H dimension of a
head (N * H = D), F hidden dimension of the feed-forward layer.

  PAX (under `params.lm.`)                 shape         Hugging Face
  embedding_lookup.emb_var                 [V, D]        transformer.wte.weight
  transformer.x_layers_<i>.                              transformer.h.<i>.
    layer_norm.scale, .bias                [D]             ln_1.weight, .bias
    self_attention.combined_qkv.w          [3, D, N, H]    attn.q_proj.weight
                                                           (and k, v)
    self_attention.post.w                  [D, N, H]       attn.out_proj.weight
    ff_layer.ffn_layer1.linear.w, .bias.b  [D, F], [F]     mlp.fc_in.weight ...
    ff_layer.ffn_layer2.linear.w, .bias.b  [F, D], [D]     mlp.fc_out.weight ...
  final_ln.scale, .bias                    [D]           transformer.ln_f.weight
  softmax.logits_ffn.linear.w, .bias.b     [D, V], [V]   lm_head.weight, .bias

A Hugging Face linear weight is [outputs, inputs], so a PAX linear `w` is its
transpose. `post.w` is not transposed: the layer computes
`einsum('...NH,DNH->...D')`.

For layer norms, `scale` is the factor itself: y = normalized(x) * scale + bias.
It equals the Hugging Face weight. By default, praxis' LayerNorm multiplies by
1 + scale. Sax's GPT-J experiment sets `direct_scale` and epsilon 1e-5. So no
number is added to or subtracted from `scale`.

Rotary embeddings keep the form of the checkpoint, so the columns of q and k
keep their order. A tensor may contain queries, keys and values together. Its
rows are then in the order (head, one of the three, dimension of the head), or
one after the other if the family has them in `fused`.
"""

from collections.abc import Callable, Sequence
import dataclasses
import math

import numpy as np

from saxml_ext.engine import variables as variables_lib
from saxml_ext.families import family as family_lib
from saxml_ext.families import gptj
from saxml_ext.families import hf_config
from saxml_ext.pax import metadata

# GPT-J 6B has 50400 tokens. The fine-tuned model of MLPerf has one more, for
# padding. The files of both may have further padding. Like Sax's own converter,
# this module cuts the additional rows.
_OFFICIAL_VOCAB_SIZES = (50400, 50401)
_OFFICIAL_VOCAB_LIMIT = 50401
# The variables whose dimensions rotary positions rotate.
_ROTATED = tuple(
  f'layers.{part}{leaf}' for part in ('query', 'key') for leaf in ('', '_bias')
)


@dataclasses.dataclass(frozen=True)
class Variable:
  """A PAX variable and the Hugging Face tensors that it is made of.

  Attributes:
    name: The PAX name without `mdl_vars.`, e.g. `params.lm.final_ln.scale`.
    shape: The shape of the PAX variable.
    sources: The names of the Hugging Face tensors in the order in which they
      are stacked; empty if the variable is zeros.
    source_shape: The shape of each source after the vocabulary is cut.
    starts: The first of the rows of each source that belong to the variable.
      Empty if all rows do.
    height: The number of these rows; 0 stands for all.
    vocab_axis: The axis of the source that counts tokens, or None.
    views: For each source, a function from the region of some PAX rows to a
      view of it in the form of the PAX array. The last dimension may be split
      in two.
    axis: The axis of the only source that becomes the rows of the PAX array.
      None if rows are made of the whole source.
    stacked: True if the sources are stacked along a new first axis.
  """

  name: str
  shape: tuple[int, ...]
  sources: tuple[str, ...]
  source_shape: tuple[int, ...]
  vocab_axis: int | None
  views: tuple[Callable[[np.ndarray], np.ndarray], ...]
  axis: int | None = None
  stacked: bool = False
  starts: tuple[int, ...] = ()
  height: int = 0

  def spec(self, dtype: str) -> metadata.ArraySpec:
    """Returns the spec of the PAX variable for a type."""
    return metadata.ArraySpec(self.shape, dtype)

  def regions(
    self, begin: int, end: int
  ) -> list[tuple[str, tuple[slice, ...]]]:
    """Returns the sources of a range of rows, and the region of each.

    Args:
      begin: The first row, along the first axis of the PAX array.
      end: The row after the last.
    """
    rows, *rest = (slice(0, size) for size in self.source_shape)
    if self.axis == 0:
      rows = slice(begin, end)
    elif self.axis is not None and not self.stacked:
      rest[self.axis - 1] = slice(begin, end)
    regions = [(name, (rows, *rest)) for name in self.sources]
    for i, start in enumerate(self.starts):
      regions[i] = self.sources[i], (slice(start, start + self.height), *rest)
    return regions[begin:end] if self.stacked else regions

  def pieces(
    self, tensors: Sequence[np.ndarray], begin: int, end: int
  ) -> list[np.ndarray]:
    """Returns views that make up a range of rows of the PAX array.

    Args:
      tensors: The regions of the sources, as `regions` returns them.
      begin: The first row, along the first axis of the PAX array.
      end: The row after the last.

    Returns:
      Views of the sources. Concatenated, they are the rows [begin, end).
    """
    if not tensors:  # The family has no such tensor.
      return [np.zeros((end - begin, *self.shape[1:]), np.float32)]
    views = self.views[begin:end] if self.stacked else self.views
    pieces = [view(tensor) for view, tensor in zip(views, tensors, strict=True)]
    if self.stacked:
      pieces = [piece[np.newaxis] for piece in pieces]
    elif self.axis is None and len(self.shape) == 4:
      # Queries, keys and values are in one tensor.
      pieces = [pieces[0][i : i + 1] for i in range(begin, end)]
    elif self.axis is None:
      pieces = [pieces[0][begin:end]]
    return [piece.reshape(len(piece), *self.shape[1:]) for piece in pieces]

  def build(self, tensors: Sequence[np.ndarray]) -> np.ndarray:
    """Returns the C-contiguous PAX array, built from the sources in order."""
    pieces = self.pieces(tensors, 0, self.shape[0])
    return np.ascontiguousarray(np.concatenate(pieces))


def variables(
  shape: hf_config.HFConfig,
  tied_embeddings: bool = False,
  family: family_lib.Family = gptj.FAMILY,
) -> tuple[Variable, ...]:
  """Returns all variables of a model in the order of conversion.

  Args:
    shape: The sizes of the model.
    tied_embeddings: True if the checkpoint has no separate matrix for the head.
      The embedding is then used in its place.
    family: The family of the model.
  """
  return tuple(
    _variable(row, layer, shape, tied_embeddings, family)
    for row, layer in family.table.entries(shape)
  )


def _variable(
  row: variables_lib.Variable,
  layer: int,
  shape: hf_config.HFConfig,
  tied_embeddings: bool,
  family: family_lib.Family,
) -> Variable:
  field = 'embedding' if tied_embeddings and row.field == 'head' else row.field
  names = family.sources(field)
  pax_shape = row.shape(shape)
  source_shape, view, axis = _form(row, pax_shape, shape, len(names))
  parts = row.parts or (row,)
  is_reordered = family.rotates_halves == family.architecture.interleaved
  starts: tuple[int, ...] = ()
  height = 0
  if names and (fields := family.fused.get(names[0])):
    split = {r.field: r for r in family.table.stored(joined=False)}
    heights = [math.prod(split[name].shape(shape)[1:]) for name in fields]
    starts = tuple(sum(heights[: fields.index(p.field)]) for p in parts)
    height = source_shape[0]
    source_shape = (sum(heights), *source_shape[1:])
  return Variable(
    name=row.path(layer),
    shape=pax_shape,
    sources=tuple(name.replace('{layer}', str(layer)) for name in names),
    source_shape=source_shape,
    vocab_axis=0 if 'vocab' in row.axes else None,
    views=tuple(
      (lambda tensor: _reordered(view(tensor), family.rotates_halves))
      if is_reordered and part.field in _ROTATED
      else view
      for part in parts
    )[: len(names)],
    axis=axis,
    stacked=bool(row.parts) and len(names) > 1,
    starts=starts,
    height=height,
  )


def _reordered(x: np.ndarray, has_halves: bool) -> np.ndarray:
  """Returns a view of heads [..., H] with the other order of rotated pairs.

  Args:
    x: The heads.
    has_halves: True if their halves rotate. The view [..., H / 2, 2] then has
      the pairs as neighbors. Otherwise, the view [..., 2, H / 2] has halves.
  """
  pairs = (2, -1) if has_halves else (-1, 2)
  return x.reshape(*x.shape[:-1], *pairs).swapaxes(-1, -2)


def _form(
  row: variables_lib.Variable,
  pax_shape: tuple[int, ...],
  shape: hf_config.HFConfig,
  count: int,
) -> tuple[tuple[int, ...], Callable[[np.ndarray], np.ndarray], int | None]:
  """Returns the shape of a source, its view in PAX form and the axis of rows.

  Args:
    row: The PAX variable in the table.
    pax_shape: The shape of the PAX variable.
    shape: The sizes of the model.
    count: The number of sources of the variable.
  """
  dim, heads, width = shape.model_dim, shape.num_heads, shape.head_dim
  if row.field == 'layers.qkv_bias' and count == 1:
    return (
      (3 * dim,),
      lambda tensor: tensor.reshape(heads, 3, width).transpose(1, 0, 2),
      None,
    )
  if row.field == 'layers.qkv' and count == 1:
    return (
      (3 * dim, dim),
      lambda tensor: tensor.reshape(heads, 3, width, dim).transpose(1, 3, 0, 2),
      None,
    )
  # The outputs of a projection are in the order (head, dimension of the head).
  if row.parts:
    pax_shape = pax_shape[1:]
  rest = pax_shape[1:]
  if row.field == 'layers.post':
    return (dim, math.prod(rest)), lambda tensor: tensor.reshape(-1, *rest), 0
  if not row.is_matrix:
    flat = 'head_dim' in row.axes
    return (
      (math.prod(pax_shape),) if flat else pax_shape,
      lambda tensor: tensor.reshape(-1, *rest),
      None if flat else 0,
    )
  outputs = math.prod(rest)
  return (
    (outputs, pax_shape[0]),
    lambda tensor: tensor.T.reshape(-1, *rest),
    1,
  )


def pax_vocab_size(config_vocab_size: int, rows: int) -> int:
  """Returns the vocabulary size of the PAX checkpoint.

  The size in the config is used, except for the official GPT-J 6B. Its files
  may have more rows than the config states. Then the number of rows is used, at
  most 50401.

  Args:
    config_vocab_size: The `vocab_size` of the Hugging Face config.
    rows: The number of rows of the embedding in the checkpoint.
  """
  if config_vocab_size in _OFFICIAL_VOCAB_SIZES and rows > config_vocab_size:
    return min(rows, _OFFICIAL_VOCAB_LIMIT)
  return config_vocab_size


def is_padded_vocab(vocab_size: int) -> bool:
  """Returns True if tensors may have additional rows, which are then cut."""
  return vocab_size == _OFFICIAL_VOCAB_LIMIT
