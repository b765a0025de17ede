"""Builds transformers' Llama from a GGUF file, without the converters' code."""

import gguf
import numpy as np
import torch
import transformers

_LAYER = {
  'attn_norm': 'input_layernorm',
  'attn_q': 'self_attn.q_proj',
  'attn_k': 'self_attn.k_proj',
  'attn_v': 'self_attn.v_proj',
  'attn_output': 'self_attn.o_proj',
  'ffn_norm': 'post_attention_layernorm',
  'ffn_gate': 'mlp.gate_proj',
  'ffn_up': 'mlp.up_proj',
  'ffn_down': 'mlp.down_proj',
}
_OUTER = {
  'token_embd.weight': 'model.embed_tokens.weight',
  'output_norm.weight': 'model.norm.weight',
}


def load(path: str) -> transformers.LlamaForCausalLM:
  """Returns the model in float32, with the dequantized weights of a file.

  Args:
    path: The GGUF file of a Llama whose head is the embedding.
  """
  reader = gguf.GGUFReader(path)

  def setting(key: str):
    return reader.fields[f'llama.{key}'].contents()

  heads = {
    'attn_q': setting('attention.head_count'),
    'attn_k': setting('attention.head_count_kv'),
  }
  config = transformers.LlamaConfig(
    vocab_size=setting('vocab_size'),
    hidden_size=setting('embedding_length'),
    intermediate_size=setting('feed_forward_length'),
    num_hidden_layers=setting('block_count'),
    num_attention_heads=heads['attn_q'],
    num_key_value_heads=heads['attn_k'],
    max_position_embeddings=setting('context_length'),
    rms_norm_eps=setting('attention.layer_norm_rms_epsilon'),
    rope_theta=setting('rope.freq_base'),
    tie_word_embeddings=True,
  )
  tensors = {}
  for tensor in reader.tensors:
    values = gguf.dequantize(tensor.data, tensor.tensor_type)
    if tensor.name in _OUTER:
      name = _OUTER[tensor.name]
    else:
      _, layer, part, _ = tensor.name.split('.')
      name = f'model.layers.{layer}.{_LAYER[part]}.weight'
      if part in heads:
        values = _halves(values, heads[part])
    tensors[name] = torch.from_numpy(np.array(values))
  tensors['lm_head.weight'] = tensors['model.embed_tokens.weight']
  model = transformers.LlamaForCausalLM(config)
  model.load_state_dict(tensors)
  return model.eval()


def _halves(values: np.ndarray, heads: int) -> np.ndarray:
  """Returns queries or keys [N * H, D] whose rotated pairs are H / 2 apart.

  llama.cpp rotates neighboring dimensions, and transformers rotates halves.
  """
  pairs = values.reshape(heads, -1, 2, values.shape[1])
  return pairs.swapaxes(1, 2).reshape(values.shape)
