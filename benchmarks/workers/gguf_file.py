"""Writes a Llama as a GGUF file for llama.cpp, one tensor at a time."""

import gguf
from gguf import quants
import numpy as np

from converters.convert import model_source
from saxml_ext.common import files
from saxml_ext.engine import rotary
from saxml_ext.families import hf_config

TYPES = {
  'q8_0': gguf.GGMLQuantizationType.Q8_0,
  'q4_0': gguf.GGMLQuantizationType.Q4_0,
}
_LAYER = {
  'input_layernorm': 'attn_norm',
  'self_attn.q_proj': 'attn_q',
  'self_attn.k_proj': 'attn_k',
  'self_attn.v_proj': 'attn_v',
  'self_attn.o_proj': 'attn_output',
  'post_attention_layernorm': 'ffn_norm',
  'mlp.gate_proj': 'ffn_gate',
  'mlp.up_proj': 'ffn_up',
  'mlp.down_proj': 'ffn_down',
}
# Q4_0 files of llama.cpp have the head, or the embedding that it is tied to, in
# a more precise type; Q8_0 is the nearest one that this package can write.
_HEADS = ('token_embd.weight', 'output.weight')


def write(model: str, path: str, dtype: str) -> None:
  """Writes a file, which appears when it is complete.

  Args:
    model: The directory of a Hugging Face Llama.
    path: The file to write.
    dtype: A key of TYPES. Norms stay float32.

  Raises:
    errors.CheckpointError: The directory has no complete model.
    OSError: The file cannot be written.
  """
  checkpoint = model_source.ModelSource(model).checkpoint
  config = checkpoint.config
  names = _names(config)
  names = {k: v for k, v in names.items() if k in checkpoint.shapes}
  with files.replacing(path, 'wb', sole_writer=True) as file:
    writer = gguf.GGUFWriter(file.name, 'llama')
    _add_sizes(writer, config)
    kinds = {}
    for name, target in names.items():
      shape = checkpoint.shapes[name]
      kinds[target] = TYPES['q8_0' if target in _HEADS else dtype]
      if len(shape) == 1:
        kinds[target] = gguf.GGMLQuantizationType.F32
      bytes_shape = shape
      if len(shape) > 1:
        bytes_shape = quants.quant_shape_to_byte_shape(shape, kinds[target])
      size = int(np.prod(bytes_shape)) * (4 if len(shape) == 1 else 1)
      writer.add_tensor_info(
        target,
        bytes_shape,
        np.dtype(np.float32 if len(shape) == 1 else np.uint8),
        size,
        raw_dtype=kinds[target],
      )
    factors = _rotary_factors(config)
    if factors is not None:
      writer.add_tensor_info(
        'rope_freqs.weight', factors.shape, factors.dtype, factors.nbytes
      )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for name, target in names.items():
      values = checkpoint.read(name)
      if target.endswith(('attn_q.weight', 'attn_k.weight')):
        values = _neighbors(values, config.head_dim)
      writer.write_tensor_data(_quantized(values, kinds[target]))
      checkpoint.release(name)
    if factors is not None:
      writer.write_tensor_data(factors)
    writer.close()


def _names(config: hf_config.HFConfig) -> dict[str, str]:
  """Returns llama.cpp's names of tensors by Hugging Face's names."""
  names = {
    'model.embed_tokens.weight': 'token_embd.weight',
    'model.norm.weight': 'output_norm.weight',
    'lm_head.weight': 'output.weight',
  }
  for layer in range(config.num_layers):
    for name, target in _LAYER.items():
      source = f'model.layers.{layer}.{name}.weight'
      names[source] = f'blk.{layer}.{target}.weight'
  return names


def _add_sizes(writer: gguf.GGUFWriter, config: hf_config.HFConfig) -> None:
  writer.add_block_count(config.num_layers)
  writer.add_context_length(config.max_positions)
  writer.add_embedding_length(config.model_dim)
  writer.add_feed_forward_length(config.hidden_dim)
  writer.add_head_count(config.num_heads)
  writer.add_head_count_kv(config.kv_heads)
  writer.add_layer_norm_rms_eps(config.ln_epsilon)
  writer.add_rope_dimension_count(config.rotary_dim)
  writer.add_rope_freq_base(config.rotary_base)
  # Prompts and answers are token ids, so the file needs no tokenizer.
  writer.add_tokenizer_model('none')
  writer.add_vocab_size(config.vocab_size)


def _neighbors(values: np.ndarray, head_dim: int) -> np.ndarray:
  """Returns rows in llama.cpp's order, which rotates neighboring rows."""
  halves = values.reshape(-1, 2, head_dim // 2, values.shape[1])
  return halves.swapaxes(1, 2).reshape(values.shape)


def _quantized(
  values: np.ndarray, kind: gguf.GGMLQuantizationType
) -> np.ndarray:
  values = values.astype(np.float32)
  if kind == gguf.GGMLQuantizationType.F32:
    return values
  return quants.quantize(values, kind)


def _rotary_factors(config: hf_config.HFConfig) -> np.ndarray | None:
  """Returns the divisors of frequencies, or None without scaling."""
  if config.rotary_scaling is None:
    return None
  # The angle of position 1 is the frequency.
  plain, scaled = (
    np.arctan2(
      *rotary.table(2, config.rotary_dim, config.rotary_base, scaling)
    )[1]
    for scaling in (None, config.rotary_scaling)
  )
  return plain / scaled
