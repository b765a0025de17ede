"""Names and shapes of GPT-J's variables: Hugging Face <-> PAX, in one table.

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

Layer norm: `scale` is the factor itself, y = normalised(x) * scale + bias, and
is the Hugging Face weight unchanged. (praxis' LayerNorm multiplies by
1 + scale unless `direct_scale` is set; Sax's GPT-J experiment sets it, with
epsilon 1e-5, so nothing is added to or subtracted from `scale` anywhere.)

Rotary embedding stays in GPT-J's interleaved form, so the columns of q and k
keep their order.
"""

from collections.abc import Callable, Sequence
import dataclasses

import numpy as np

from saxml_ext.pax import errors

PREFIX = 'params.lm'

# GPT-J 6B has 50400 tokens; the fine-tuned model of MLPerf has one more, for
# padding. Files of either may be padded further: rows beyond are cut, as Sax'
# own converter does.
_OFFICIAL_VOCAB_SIZES = (50400, 50401)
_OFFICIAL_VOCAB_LIMIT = 50401


@dataclasses.dataclass(frozen=True)
class GPTJShape:
  """Sizes of a GPT-J; `vocab_size` is the one that the PAX side has."""

  num_layers: int
  model_dim: int
  num_heads: int
  hidden_dim: int
  vocab_size: int

  def __post_init__(self):
    for field in dataclasses.fields(self):
      value = getattr(self, field.name)
      if value < 1:
        raise errors.CheckpointError(
            f'{field.name} is {value}; a GPT-J needs at least 1'
        )
    if self.model_dim % self.num_heads:
      raise errors.CheckpointError(
          f'model_dim {self.model_dim} is not a multiple of num_heads '
          f'{self.num_heads}'
      )

  @property
  def head_dim(self) -> int:
    return self.model_dim // self.num_heads


@dataclasses.dataclass(frozen=True)
class Variable:
  """One PAX variable and the Hugging Face tensors that it is made of.

  Attributes:
    name: PAX name without `mdl_vars.`, e.g. `params.lm.final_ln.scale`.
    shape: of the PAX variable.
    sources: names of the Hugging Face tensors, in the order they are stacked.
    source_shape: of each source, after the vocabulary was cut.
    vocab_axis: axis of the source that counts tokens, or None.
    view: from one source to its part of the PAX array, without a copy.
    stacked: the sources are stacked along a new first axis.
  """

  name: str
  shape: tuple[int, ...]
  sources: tuple[str, ...]
  source_shape: tuple[int, ...]
  vocab_axis: int | None
  view: Callable[[np.ndarray], np.ndarray]
  stacked: bool = False

  def pieces(
      self, tensors: Sequence[np.ndarray], begin: int, end: int
  ) -> list[np.ndarray]:
    """Views that make up the rows [begin, end) of the PAX array, in order.

    Args:
      tensors: the sources in their order, each of source_shape.
      begin: first row, along the first axis of the PAX array.
      end: row after the last.

    Returns:
      Views of the sources; together, one after the other, they are the rows.
    """
    if self.stacked:
      return [self.view(t)[np.newaxis] for t in tensors[begin:end]]
    return [self.view(tensors[0])[begin:end]]

  def build(self, tensors: Sequence[np.ndarray]) -> np.ndarray:
    """Makes the C-contiguous PAX array from the sources, in their order."""
    pieces = self.pieces(tensors, 0, self.shape[0])
    return np.ascontiguousarray(np.concatenate(pieces))


def _same(tensor: np.ndarray) -> np.ndarray:
  return tensor


def _transposed(tensor: np.ndarray) -> np.ndarray:
  return tensor.T


def _layer(shape: GPTJShape, index: int) -> list[Variable]:
  pax = f'{PREFIX}.transformer.x_layers_{index}'
  hf = f'transformer.h.{index}'
  dim, hidden = shape.model_dim, shape.hidden_dim
  heads, head_dim = shape.num_heads, shape.head_dim

  def inputs_first(tensor: np.ndarray) -> np.ndarray:
    # Outputs of a projection are ordered (head, dimension of the head).
    return tensor.T.reshape(dim, heads, head_dim)

  def split_heads(tensor: np.ndarray) -> np.ndarray:
    return tensor.reshape(dim, heads, head_dim)

  def same(name, source, size):
    return Variable(
        f'{pax}.{name}', (size,), (f'{hf}.{source}',), (size,), None, _same
    )

  def linear(name, source, inputs, outputs):
    return Variable(
        f'{pax}.{name}',
        (inputs, outputs),
        (f'{hf}.{source}',),
        (outputs, inputs),
        None,
        _transposed,
    )

  qkv = tuple(f'{hf}.attn.{x}_proj.weight' for x in 'qkv')
  return [
      same('layer_norm.scale', 'ln_1.weight', dim),
      same('layer_norm.bias', 'ln_1.bias', dim),
      Variable(
          f'{pax}.self_attention.combined_qkv.w',
          (3, dim, heads, head_dim),
          qkv,
          (dim, dim),
          None,
          inputs_first,
          stacked=True,
      ),
      Variable(
          f'{pax}.self_attention.post.w',
          (dim, heads, head_dim),
          (f'{hf}.attn.out_proj.weight',),
          (dim, dim),
          None,
          split_heads,
      ),
      linear('ff_layer.ffn_layer1.linear.w', 'mlp.fc_in.weight', dim, hidden),
      same('ff_layer.ffn_layer1.bias.b', 'mlp.fc_in.bias', hidden),
      linear('ff_layer.ffn_layer2.linear.w', 'mlp.fc_out.weight', hidden, dim),
      same('ff_layer.ffn_layer2.bias.b', 'mlp.fc_out.bias', dim),
  ]


def variables(
    shape: GPTJShape, tied_embeddings: bool = False
) -> tuple[Variable, ...]:
  """All variables of a GPT-J in the order in which they are converted.

  Args:
    shape: sizes of the model.
    tied_embeddings: the checkpoint has no lm_head.weight of its own; the
      embedding is used in its place.
  """
  dim, vocab = shape.model_dim, shape.vocab_size
  wte = 'transformer.wte.weight'
  head = wte if tied_embeddings else 'lm_head.weight'
  table = [
      Variable(
          f'{PREFIX}.embedding_lookup.emb_var',
          (vocab, dim),
          (wte,),
          (vocab, dim),
          0,
          _same,
      )
  ]
  for index in range(shape.num_layers):
    table += _layer(shape, index)
  for pax_part, hf_part in (('scale', 'weight'), ('bias', 'bias')):
    table.append(
        Variable(
            f'{PREFIX}.final_ln.{pax_part}',
            (dim,),
            (f'transformer.ln_f.{hf_part}',),
            (dim,),
            None,
            _same,
        )
    )
  table.append(
      Variable(
          f'{PREFIX}.softmax.logits_ffn.linear.w',
          (dim, vocab),
          (head,),
          (vocab, dim),
          0,
          _transposed,
      )
  )
  table.append(
      Variable(
          f'{PREFIX}.softmax.logits_ffn.bias.b',
          (vocab,),
          ('lm_head.bias',),
          (vocab,),
          0,
          _same,
      )
  )
  return tuple(table)


def pax_vocab_size(config_vocab_size: int, rows: int) -> int:
  """Vocabulary of the PAX checkpoint.

  Args:
    config_vocab_size: `vocab_size` of the Hugging Face config.
    rows: rows that the embedding has in the checkpoint.

  Returns:
    The size in the config, except for the official GPT-J 6B, whose files may
    hold more rows than its config says: what they have, 50401 at most.
  """
  if config_vocab_size in _OFFICIAL_VOCAB_SIZES and rows > config_vocab_size:
    return min(rows, _OFFICIAL_VOCAB_LIMIT)
  return config_vocab_size


def is_padded_vocab(vocab_size: int) -> bool:
  """Whether tensors may have more rows than this, which are then cut."""
  return vocab_size == _OFFICIAL_VOCAB_LIMIT
