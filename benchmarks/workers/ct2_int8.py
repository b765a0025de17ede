"""Converts a GPT-J or a Llama to CTranslate2's int8 format with little memory.

CTranslate2's converter loads the model with transformers and quantizes all of
it before it writes the first byte. For a GPT-J of 6 billion parameters in
bfloat16, this takes 18 GB. This module reads, quantizes and writes one matrix
after the other. The specification, the quantization and the file format are
those of CTranslate2's Python package. The file is equal to that of its
converter.
"""

from collections.abc import Callable
import functools

from ctranslate2 import specs as ct2_specs
from ctranslate2.specs import attention_spec
from ctranslate2.specs import common_spec
from ctranslate2.specs import model_spec
import numpy as np
import transformers

from converters.convert import model_source
from saxml_ext.common import files

# The number of values that are quantized together, which exist in float32
# during that time.
_BLOCK = 1 << 22

_Read = Callable[[], np.ndarray]


def convert(model: str, path: str) -> None:
  """Writes an int8 model for CTranslate2.

  Args:
    model: The directory of a Hugging Face model with its tokenizer.
    path: The directory to write, which appears when it is complete.

  Raises:
    errors.CheckpointError: The directory has no complete model.
    KeyError: The model is neither a GPT-J nor a Llama.
    OSError: A file cannot be written.
  """
  source = model_source.ModelSource(model)
  spec = _SPECS[source.checkpoint.family.name](source)
  tokenizer = transformers.AutoTokenizer.from_pretrained(model)
  vocabulary = tokenizer.get_vocab()
  spec.register_vocabulary(sorted(vocabulary, key=vocabulary.__getitem__))
  for name in ('bos_token', 'eos_token', 'unk_token'):
    setattr(spec.config, name, getattr(tokenizer, name))
  spec.validate()
  if 'lm_head.weight' not in source.checkpoint.shapes:
    # The file has equal weights only once, and the name of the first.
    spec.decoder.projection.weight = 'decoder/embeddings/weight'
    spec.decoder.projection.weight_scale = model_spec.OPTIONAL
  with files.new_directory(path) as unfinished:
    spec.save(unfinished)


class _Stored(model_spec.Variable):
  """A variable whose values are computed when they are written."""

  def __init__(self, shape: tuple[int, ...], dtype: str, read: _Read):
    """Stores the arguments; reads nothing.

    Args:
      shape: The shape of the values.
      dtype: The NumPy name of the type of the values.
      read: The function that returns the values.
    """
    self._shape = shape
    self._dtype = dtype
    self._read = read

  @property
  def shape(self) -> list[int]:
    return list(self._shape)

  @property
  def dtype(self) -> str:
    return self._dtype

  def numpy(self) -> np.ndarray:
    return self._read()

  def num_bytes(self) -> int:
    return int(np.prod(self._shape)) * _ITEM_BYTES[self._dtype]

  def to_bytes(self) -> bytes:
    return self._read().tobytes()

  def _to(self, dtype: str) -> model_spec.Variable:
    raise NotImplementedError('The variable already has its final type.')

  def _equal(self, other: '_Stored') -> bool:
    return self is other


_ITEM_BYTES = {'int8': 1, 'float16': 2, 'bfloat16': 2, 'float32': 4}


def _gptj(
  source: model_source.ModelSource,
) -> ct2_specs.TransformerDecoderModelSpec:
  """Returns the specification with all its variables, without reading them."""
  config = source.checkpoint.config
  shapes = source.checkpoint.shapes
  spec = ct2_specs.TransformerDecoderModelSpec.from_config(
    config.num_layers,
    config.num_heads,
    pre_norm=True,
    activation=common_spec.Activation.GELUTanh,
    rotary_dim=config.rotary_dim,
    rotary_interleave=False,
    parallel_residual=True,
    shared_layer_norm=True,
  )
  tensors = _Tensors(source)
  tensors.set_norm(spec.decoder.layer_norm, 'transformer.ln_f')
  tensors.set_matrix(spec.decoder.embeddings, ('transformer.wte.weight',))
  head = 'lm_head.weight'
  if head not in shapes:  # The head is tied to the embedding.
    head = 'transformer.wte.weight'
  tensors.set_matrix(spec.decoder.projection, (head,))
  tensors.set_bias(spec.decoder.projection, 'lm_head.bias')
  spec.decoder.scale_embeddings = False
  for index, layer in enumerate(spec.decoder.layer):
    prefix = f'transformer.h.{index}'
    tensors.set_norm(layer.shared_layer_norm, f'{prefix}.ln_1')
    qkv, post = layer.self_attention.linear
    names = tuple(f'{prefix}.attn.{x}_proj.weight' for x in 'qkv')
    tensors.set_matrix(qkv, names, tensors.sliced_rotary())
    tensors.set_matrix(post, (f'{prefix}.attn.out_proj.weight',))
    for linear, name in (
      (layer.ffn.linear_0, 'fc_in'),
      (layer.ffn.linear_1, 'fc_out'),
    ):
      tensors.set_matrix(linear, (f'{prefix}.mlp.{name}.weight',))
      tensors.set_bias(linear, f'{prefix}.mlp.{name}.bias')
  return spec


def _llama(
  source: model_source.ModelSource,
) -> ct2_specs.TransformerDecoderModelSpec:
  """Returns the specification with all its variables, without reading them."""
  config = source.checkpoint.config
  scaling = config.rotary_scaling
  grouped = config.kv_heads < config.num_heads
  spec = ct2_specs.TransformerDecoderModelSpec.from_config(
    config.num_layers,
    config.num_heads,
    activation=common_spec.Activation.SWISH,
    pre_norm=True,
    ffn_glu=True,
    rms_norm=True,
    rotary_dim=0,
    rotary_interleave=False,
    rotary_scaling_type=(
      attention_spec.RotaryScalingType.Llama3 if scaling else None
    ),
    rotary_scaling_factor=scaling.factor if scaling else 1,
    rotary_base=config.rotary_base,
    num_heads_kv=config.kv_heads if grouped else None,
  )
  spec.config.layer_norm_epsilon = config.ln_epsilon
  tensors = _Tensors(source)
  embedding = 'model.embed_tokens.weight'
  tensors.set_norm(spec.decoder.layer_norm, 'model.norm')
  tensors.set_matrix(spec.decoder.embeddings, (embedding,))
  head = 'lm_head.weight'
  tied = head not in source.checkpoint.shapes
  # The checks of the specification require a weight. `convert` replaces it.
  tensors.set_matrix(spec.decoder.projection, (embedding if tied else head,))
  spec.decoder.scale_embeddings = False
  for index, layer in enumerate(spec.decoder.layer):
    prefix = f'model.layers.{index}'
    attention = layer.self_attention
    if scaling:
      attention.rotary_low_freq_factor = scaling.low_freq_factor
      attention.rotary_high_freq_factor = scaling.high_freq_factor
    tensors.set_norm(attention.layer_norm, f'{prefix}.input_layernorm')
    tensors.set_norm(layer.ffn.layer_norm, f'{prefix}.post_attention_layernorm')
    names = tuple(f'{prefix}.self_attn.{x}_proj.weight' for x in 'qkv')
    tensors.set_matrix(attention.linear[0], names)
    for linear, name in (
      (attention.linear[1], 'self_attn.o'),
      (layer.ffn.linear_0, 'mlp.gate'),
      (layer.ffn.linear_0_noact, 'mlp.up'),
      (layer.ffn.linear_1, 'mlp.down'),
    ):
      tensors.set_matrix(linear, (f'{prefix}.{name}_proj.weight',))
  return spec


_SPECS = {'gptj': _gptj, 'llama': _llama}


class _Tensors:
  """Assigns tensors of a checkpoint to the parts of a specification."""

  def __init__(self, source: model_source.ModelSource):
    self._checkpoint = source.checkpoint

  def set_norm(self, spec: common_spec.LayerNormSpec, name: str) -> None:
    spec.gamma = self._vector(f'{name}.weight')
    if f'{name}.bias' in self._checkpoint.shapes:
      spec.beta = self._vector(f'{name}.bias')

  def set_bias(self, spec: common_spec.LinearSpec, name: str) -> None:
    spec.bias = self._vector(name)

  def set_matrix(
    self,
    spec: common_spec.LinearSpec | common_spec.EmbeddingsSpec,
    names: tuple[str, ...],
    order: np.ndarray | None = None,
  ) -> None:
    """Sets an int8 weight and its scales.

    Args:
      spec: The layer that has the weight.
      names: The names of the tensors [outputs, inputs], which are stacked along
        the outputs.
      order: The order of the rows of the stacked tensors; None keeps it.
    """
    shapes = [self._checkpoint.shapes[name] for name in names]
    rows = sum(shape[0] for shape in shapes)

    # A weight is written directly before its scale, so one result is enough.
    @functools.lru_cache(maxsize=1)
    def made() -> tuple[np.ndarray, np.ndarray]:
      tensors = [self._checkpoint.read(name) for name in names]
      stacked = tensors[0] if len(names) == 1 else np.concatenate(tensors)
      quantized = _quantized(stacked if order is None else stacked[order])
      for name in names:
        self._checkpoint.release(name)
      return quantized

    def scale() -> np.ndarray:
      result = made()[1]
      made.cache_clear()
      return result

    spec.weight = _Stored((rows, shapes[0][1]), 'int8', lambda: made()[0])
    spec.weight_scale = _Stored((rows,), 'float32', scale)

  def sliced_rotary(self) -> np.ndarray:
    """Returns an order of the q, k and v rows that splits pairs into halves.

    GPT-J rotates neighboring rows of a head. Without `rotary_interleave`,
    CTranslate2 rotates row i and row i + n / 2 of the n rotated rows. The rows
    of v keep their order.
    """
    config = self._checkpoint.config
    rotated = config.rotary_dim
    rows = np.arange(3 * config.model_dim)
    heads = rows.reshape(3, config.num_heads, -1)
    pairs = heads[:2, :, :rotated].copy()
    heads[:2, :, : rotated // 2] = pairs[..., ::2]
    heads[:2, :, rotated // 2 : rotated] = pairs[..., 1::2]
    return rows

  def _vector(self, name: str) -> _Stored:
    shape = self._checkpoint.shapes[name]
    dtype = self._checkpoint.read(name).dtype.name
    return _Stored(shape, dtype, lambda: self._checkpoint.read(name))


def _quantized(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """Quantizes the rows of a matrix to int8 with scales, as CTranslate2 does."""
  values = np.empty(matrix.shape, np.int8)
  scales = np.empty(len(matrix), np.float32)
  step = max(1, _BLOCK // matrix.shape[1])
  for begin in range(0, len(matrix), step):
    rows = slice(begin, begin + step)
    # Any part of a specification works if it has a weight and a scale.
    part = common_spec.EmbeddingsSpec()
    part.weight = matrix[rows].astype(np.float32)
    part.validate()
    part.optimize(quantization='int8')
    values[rows] = part.weight.numpy()
    scales[rows] = part.weight_scale.numpy()
  return values, scales
