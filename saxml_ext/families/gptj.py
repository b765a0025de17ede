"""GPT-J: one norm for attention and feed-forward, which are added together."""

import re
from typing import Any

from saxml_ext.engine import architecture
from saxml_ext.families import family
from saxml_ext.families import gptj_published
from saxml_ext.families import gptj_serving
from saxml_ext.families import hf_config

# All are the tanh approximation of GELU, which praxis computes as well.
_ACTIVATIONS = ('gelu_new', 'gelu_pytorch_tanh', 'gelu_fast')
_LAYER = 'transformer.h.{layer}.'


def _read(fields: hf_config.Fields) -> hf_config.HFConfig:
  fields.choice('activation_function', 'gelu_new', _ACTIVATIONS)
  model_dim = fields.integer('n_embd')
  return hf_config.HFConfig(
    num_layers=fields.integer('n_layer'),
    model_dim=model_dim,
    num_heads=fields.integer('n_head'),
    hidden_dim=fields.integer('n_inner', 4 * model_dim),
    rotary_dim=fields.integer('rotary_dim', 64),
    vocab_size=fields.integer('vocab_size'),
    max_positions=fields.integer('n_positions', 2048),
    layer_norm_epsilon=fields.number('layer_norm_epsilon', 1e-5),
    tied_embeddings=bool(fields.get('tie_word_embeddings', False)),
    bos_token_id=fields.token('bos_token_id'),
    eos_token_id=fields.token('eos_token_id'),
    pad_token_id=fields.token('pad_token_id'),
  )


def _make(config: hf_config.HFConfig) -> dict[str, Any]:
  return {
    'architectures': ['GPTJForCausalLM'],
    'activation_function': 'gelu_new',
    'n_layer': config.num_layers,
    'n_embd': config.model_dim,
    'n_head': config.num_heads,
    'n_inner': config.hidden_dim,
    'n_positions': config.max_positions,
    'rotary_dim': config.rotary_dim,
    'layer_norm_epsilon': config.layer_norm_epsilon,
  }


FAMILY = family.Family(
  name='gptj',
  title='GPT-J',
  architecture=architecture.GPTJ,
  read_config=_read,
  make_config=_make,
  tensors={
    'embedding': ('transformer.wte.weight',),
    'layers.norm.scale': (_LAYER + 'ln_1.weight',),
    'layers.norm.bias': (_LAYER + 'ln_1.bias',),
    'layers.qkv': tuple(f'{_LAYER}attn.{x}_proj.weight' for x in 'qkv'),
    'layers.post': (_LAYER + 'attn.out_proj.weight',),
    'layers.up': (_LAYER + 'mlp.fc_in.weight',),
    'layers.up_bias': (_LAYER + 'mlp.fc_in.bias',),
    'layers.down': (_LAYER + 'mlp.fc_out.weight',),
    'layers.down_bias': (_LAYER + 'mlp.fc_out.bias',),
    'final_norm.scale': ('transformer.ln_f.weight',),
    'final_norm.bias': ('transformer.ln_f.bias',),
    'head': ('lm_head.weight',),
    'head_bias': ('lm_head.bias',),
  },
  # Masks and tables that older versions of transformers saved.
  buffers=re.compile(
    r'transformer\.h\.\d+\.attn\.(bias|masked_bias|embed_positions)'
  ),
  praxis_model='saxml_ext.families.praxis.gptj_model',
  params={**gptj_published.TABLE, **gptj_serving.TABLE},
  serving=gptj_serving.ANY,
  published={'gpt-j-6b': (28, 4096, 16, 64, 50400)},
)
