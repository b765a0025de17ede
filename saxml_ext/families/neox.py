"""GPT-NeoX and Pythia: attention and feed-forward side by side, two norms."""

import re
from typing import Any

from saxml_ext.engine import architecture
from saxml_ext.families import family
from saxml_ext.families import gptj_serving
from saxml_ext.families import hf_config
from saxml_ext.families import servable

_LAYER = 'gpt_neox.layers.{layer}.'
_QKV = _LAYER + 'attention.query_key_value.'
_ANY = 'saxml_ext.params.gpt_neox.AnyGPTNeoX'


def _rotation(fields: hf_config.Fields) -> hf_config.Fields:
  """Returns the entries on rotary positions, as transformers 5 calls them."""
  found = fields.get('rope_parameters')
  if not isinstance(found, dict):
    found = {
      'partial_rotary_factor': fields.get('rotary_pct'),
      'rope_theta': fields.get('rotary_emb_base'),
    }
  return hf_config.Fields(fields.path, found)


def _read(fields: hf_config.Fields) -> hf_config.HFConfig:
  fields.choice('hidden_act', 'gelu', ('gelu',))
  # Without it the feed-forward follows attention, as in no published Pythia.
  fields.choice('use_parallel_residual', True, (True,))
  fields.choice('attention_bias', True, (True,))
  fields.choice('rope_scaling', None, (None,))
  rotation = _rotation(fields)
  rotation.choice('rope_type', 'default', ('default',))
  model_dim = fields.integer('hidden_size')
  num_heads = fields.integer('num_attention_heads')
  share = rotation.number('partial_rotary_factor', 0.25, below=1.0000001)
  return hf_config.HFConfig(
    num_layers=fields.integer('num_hidden_layers'),
    model_dim=model_dim,
    num_heads=num_heads,
    hidden_dim=fields.integer('intermediate_size', 4 * model_dim),
    rotary_dim=int(share * (model_dim // num_heads)),
    rotary_base=rotation.number('rope_theta', 10000.0, below=1e9),
    vocab_size=fields.integer('vocab_size'),
    max_positions=fields.integer('max_position_embeddings', 2048),
    layer_norm_epsilon=fields.number('layer_norm_eps', 1e-5),
    tied_embeddings=bool(fields.get('tie_word_embeddings', False)),
    bos_token_id=fields.token('bos_token_id'),
    eos_token_id=fields.token('eos_token_id'),
    pad_token_id=fields.token('pad_token_id'),
  )


def _make(config: hf_config.HFConfig) -> dict[str, Any]:
  return {
    'architectures': ['GPTNeoXForCausalLM'],
    'hidden_act': 'gelu',
    'use_parallel_residual': True,
    'attention_bias': True,
    'num_hidden_layers': config.num_layers,
    'hidden_size': config.model_dim,
    'num_attention_heads': config.num_heads,
    'intermediate_size': config.hidden_dim,
    'max_position_embeddings': config.max_positions,
    'rotary_pct': config.rotary_dim / config.head_dim,
    'rotary_emb_base': config.rotary_base,
    'layer_norm_eps': config.layer_norm_epsilon,
  }


FAMILY = family.Family(
  name='gpt_neox',
  title='GPT-NeoX',
  architecture=architecture.Architecture(
    residual=architecture.PARALLEL,
    activation=architecture.GELU,
    biases=architecture.BIASES,
    interleaved=False,
  ),
  read_config=_read,
  make_config=_make,
  tensors={
    'embedding': ('gpt_neox.embed_in.weight',),
    'layers.norm.scale': (_LAYER + 'input_layernorm.weight',),
    'layers.norm.bias': (_LAYER + 'input_layernorm.bias',),
    'layers.qkv': (_QKV + 'weight',),
    'layers.qkv_bias': (_QKV + 'bias',),
    'layers.post': (_LAYER + 'attention.dense.weight',),
    'layers.post_bias': (_LAYER + 'attention.dense.bias',),
    'layers.ff_norm.scale': (_LAYER + 'post_attention_layernorm.weight',),
    'layers.ff_norm.bias': (_LAYER + 'post_attention_layernorm.bias',),
    'layers.up': (_LAYER + 'mlp.dense_h_to_4h.weight',),
    'layers.up_bias': (_LAYER + 'mlp.dense_h_to_4h.bias',),
    'layers.down': (_LAYER + 'mlp.dense_4h_to_h.weight',),
    'layers.down_bias': (_LAYER + 'mlp.dense_4h_to_h.bias',),
    'final_norm.scale': ('gpt_neox.final_layer_norm.weight',),
    'final_norm.bias': ('gpt_neox.final_layer_norm.bias',),
    'head': ('embed_out.weight',),
    'head_bias': (),
  },
  buffers=re.compile(
    r'gpt_neox\.layers\.\d+\.attention\.'
    r'(bias|masked_bias|rotary_emb\.inv_freq)'
  ),
  params={
    _ANY: servable.Params(
      'As AnyGPTJ, for a GPT-NeoX of any size.',
      gptj_serving.ANY,
      ARCHITECTURE='gpt_neox',
    )
  },
  serving=_ANY,
  published={
    'pythia-70m': (6, 512, 8, 16, 50304),
    'pythia-410m': (24, 1024, 16, 16, 50304),
    'pythia-1.4b': (24, 2048, 16, 32, 50304),
    'gpt-neox-20b': (44, 6144, 64, 24, 50432),
  },
)
