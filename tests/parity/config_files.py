"""Draws the contents of config.json with usual and unusual values."""

from hypothesis import strategies as st

SLIDING = 'sliding_attention'
_THETA = st.sampled_from([None, 10000, 10000.0, 500000.0, 3580165449.0])
_LENGTH = st.sampled_from([None, 16, 32, 64])
_FACTOR = st.sampled_from([1.0, 2, 4.0, 8.0])
_KIND = st.sampled_from(
  ['default', 'linear', 'llama3', 'dynamic', 'yarn', 'longrope', 'none', None]
)
_SETTINGS = st.fixed_dictionaries(
  {},
  optional={
    'rope_type': _KIND,
    'type': _KIND,
    'rope_theta': _THETA,
    'factor': _FACTOR,
    'low_freq_factor': st.sampled_from([1.0, 0.5]),
    'high_freq_factor': st.sampled_from([4.0, 2]),
    'original_max_position_embeddings': _LENGTH,
    'partial_rotary_factor': st.sampled_from([None, 1.0, 0.5, 0.25]),
    'attention_factor': st.sampled_from([None, 1.5]),
    'beta_fast': st.sampled_from([None, 4]),
    'truncate': st.booleans(),
    'mscale': st.sampled_from([None, 0.5]),
    'mscale_all_dim': st.sampled_from([None, 0.75]),
    'short_factor': st.just([1.0, 2.0, 3.0, 4.5]),
    'long_factor': st.just([9.0] * 4),
  },
)
LLAMA3 = {
  'rope_type': 'llama3',
  'factor': 8.0,
  'low_freq_factor': 1.0,
  'high_freq_factor': 4.0,
}
_NESTED = st.one_of(
  st.none(),
  st.just({}),
  st.just(LLAMA3),
  st.just({'type': 'linear', 'factor': 2.0}),
  st.just({'type': 'yarn', 'factor': 4.0}),
  st.just(
    {
      'type': 'longrope',
      'short_factor': [1.0, 2.0, 3.0, 4.5],
      'long_factor': [9.0] * 4,
      'original_max_position_embeddings': 16,
    }
  ),
  _SETTINGS,
)
_ID = st.sampled_from([None, -1, 0, 5, [5], [3, 4], 11])
COMMON = {
  'rope_scaling': _NESTED,
  'rope_parameters': _NESTED,
  'rope_theta': _THETA,
  'partial_rotary_factor': st.sampled_from([None, 1.0, 0.5]),
  'original_max_position_embeddings': _LENGTH,
  'tie_word_embeddings': st.booleans(),
  'bos_token_id': _ID,
  'eos_token_id': _ID,
  'pad_token_id': _ID,
  'n_ctx': st.just(7),
  'num_layers': st.just(7),
  'head_dim': st.sampled_from([None, 8, 16]),
  'dtype': st.sampled_from(['float32', 'bfloat16']),
  'torch_dtype': st.sampled_from(['float32', 'bfloat16']),
}
_HF = {
  'num_hidden_layers': 2,
  'hidden_size': 32,
  'num_attention_heads': 4,
  'intermediate_size': 48,
  'max_position_embeddings': 64,
  'vocab_size': 11,
}
# For classes whose default number of key heads does not fit 4 heads.
_GROUPED = {**_HF, 'num_key_value_heads': 2}
_LLAMA = {
  'num_key_value_heads': st.sampled_from([None, 1, 2, 4, 3]),
  'rms_norm_eps': st.sampled_from([1e-6, 1e-5]),
  'max_position_embeddings': st.sampled_from([32, 128]),
  'hidden_act': st.sampled_from(['silu', 'swish', 'gelu']),
  'attention_bias': st.booleans(),
}
_QWEN = {
  **_LLAMA,
  'use_sliding_window': st.booleans(),
  'sliding_window': st.sampled_from([None, 16, 64, 4096]),
  'max_window_layers': st.sampled_from([0, 1, 2]),
  'layer_types': st.sampled_from(
    [
      None,
      ['full_attention'] * 2,
      ['full_attention', SLIDING],
    ]
  ),
}
FACTORS = (
  'embedding_multiplier',
  'residual_multiplier',
  'attention_multiplier',
  'logits_scaling',
)
# The required entries of each family, and the strategies of others.
FILES = {
  'llama': (_HF, _LLAMA),
  'qwen2': (_HF, _QWEN),
  'mistral': (
    _GROUPED,
    {**_LLAMA, 'sliding_window': st.sampled_from([None, 16, 64, 4096])},
  ),
  'qwen3': (_GROUPED, _QWEN),
  'phi3': (
    _HF,
    {**_LLAMA, 'sliding_window': st.sampled_from([None, 16, 64, 4096])},
  ),
  'granite': (_HF, {**_LLAMA, **dict.fromkeys(FACTORS, st.just(0.5))}),
  'smollm3': (
    _HF,
    {
      **_QWEN,
      'no_rope_layers': st.sampled_from([None, [1, 0], [1, 1]]),
      'no_rope_layer_interval': st.sampled_from([1, 2]),
    },
  ),
  'olmo2': (_HF, _LLAMA),
  'gemma': (
    _GROUPED,
    {**_LLAMA, 'hidden_act': st.sampled_from(['gelu', 'gelu_pytorch_tanh'])},
  ),
  'gpt_neox': (
    _HF,
    {
      'rotary_pct': st.sampled_from([0.25, 0.5, 1.0]),
      'rotary_emb_base': _THETA,
      'layer_norm_eps': st.sampled_from([1e-5, 1e-6]),
      'use_parallel_residual': st.booleans(),
      'hidden_act': st.sampled_from(['gelu', 'gelu_fast', 'relu']),
      'num_key_value_heads': st.sampled_from([None, 2]),
    },
  ),
  'gptj': (
    {'n_layer': 2, 'n_embd': 32, 'n_head': 4, 'vocab_size': 11},
    {
      'n_inner': st.sampled_from([None, 48]),
      'n_positions': st.sampled_from([32, 64]),
      'rotary_dim': st.sampled_from([4, 8]),
      'num_hidden_layers': st.sampled_from([2, 3]),
      'hidden_size': st.sampled_from([32, 64]),
      'num_attention_heads': st.sampled_from([4, 2]),
      'max_position_embeddings': st.sampled_from([32, 64]),
      'layer_norm_epsilon': st.sampled_from([1e-5, 1e-6]),
    },
  ),
}


def document(model_type: str) -> st.SearchStrategy:
  """Returns a strategy of the contents of config.json of a family."""
  required, optional = FILES[model_type]
  return st.fixed_dictionaries(
    {key: st.just(value) for key, value in required.items()},
    optional={
      key: value
      for key, value in (COMMON | optional).items()
      # Scaling is refused in GPT-J, whose positions have no such setting.
      if key not in required
      and not (model_type == 'gptj' and key.startswith('rope'))
    },
  ).map(lambda document: document | {'model_type': model_type})
