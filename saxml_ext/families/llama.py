"""Defines Llama 1 to 3.3, and models of the same form: TinyLlama, SmolLM."""

from collections.abc import Mapping
import dataclasses
import re
from typing import Any

from saxml_ext.engine import architecture
from saxml_ext.families import family
from saxml_ext.families import gptj
from saxml_ext.families import hf_config
from saxml_ext.families import llama_published
from saxml_ext.families import llama_sizes
from saxml_ext.families import servable

_LAYER = 'model.layers.{layer}.'
_OWN = 'saxml_ext.params.llama.'
_ANY = _OWN + 'AnyLlama'
# The mesh and the slots of Llama 3.1 8B in int8, by TPU slice.
_SLICES = {
  'V5E2x2': ([1, 1, 4], 224),
  'V6E1x1': ([1, 1, 1], 96),
  'V6E2x2': ([1, 1, 4], 512),
}

CONFIG = hf_config.Table(
  'LlamaForCausalLM',
  keys={
    'num_layers': 'num_hidden_layers',
    'model_dim': 'hidden_size',
    'num_heads': 'num_attention_heads',
    'num_kv_heads': 'num_key_value_heads',
    'own_head_dim': 'head_dim',
    'hidden_dim': 'intermediate_size',
    'max_positions': 'max_position_embeddings',
    'rotary_base': 'rope_theta',
    'ln_epsilon': 'rms_norm_eps',
  },
  defaults={
    'max_positions': 2048,
    'rotary_base': 10000.0,
    'ln_epsilon': 1e-6,
    'bos_id': 1,
    'eos_id': 2,
  },
  accepted={
    'hidden_act': ('silu', 'swish'),
    'attention_bias': (False,),
    'mlp_bias': (False,),
    'partial_rotary_factor': (None, 1.0),
  },
  rotary_names={'rope_theta': 'rope_theta'},
)

FAMILY = family.Family(
  name='llama',
  title='Llama',
  # The defaults of the biases and of rotary positions are those of stock Sax's
  # checkpoints, which rotate neighboring dims.
  architecture=architecture.Architecture(
    residual=architecture.SEQUENTIAL,
    activation=architecture.SILU,
    gated=True,
    norm=architecture.RMS_NORM,
    biases=(),
  ),
  config=CONFIG,
  tensors={
    'embedding': ('model.embed_tokens.weight',),
    'layers.norm.scale': (_LAYER + 'input_layernorm.weight',),
    'layers.qkv': tuple(f'{_LAYER}self_attn.{x}_proj.weight' for x in 'qkv'),
    'layers.post': (_LAYER + 'self_attn.o_proj.weight',),
    'layers.ff_norm.scale': (_LAYER + 'post_attention_layernorm.weight',),
    'layers.gate': (_LAYER + 'mlp.gate_proj.weight',),
    'layers.up': (_LAYER + 'mlp.up_proj.weight',),
    'layers.down': (_LAYER + 'mlp.down_proj.weight',),
    'final_norm.scale': ('model.norm.weight',),
    'head': ('lm_head.weight',),
  },
  rotates_halves=True,
  buffers=re.compile(r'model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq'),
  params={
    **llama_published.TABLE,
    _ANY: servable.Params(
      'A Llama of any size, with the settings of AnyGPTJ.',
      gptj.ANY,
      ARCHITECTURE='llama',
    ),
    _OWN + 'TinyTokenizedFP32': servable.Params(
      """The bundled Llama in float32, ids in and out, greedy.

      It also fits another Llama: override lengths, slots and number formats.
      """,
      gptj.TOKENIZED,
      ARCHITECTURE='llama',
      USE_BEAM_SEARCH=False,
      TOP_K=1,
      INPUT_SEQ_LEN=1024,
      BUCKET_KEYS=[192, 256, 320, 512, 1024],
      MIN_DECODE_STEPS=1,
    ),
    _OWN + 'TinyTokenizedINT8': servable.Params(
      'The bundled Llama with int8 matrices, ids in and out, greedy.',
      'TinyTokenizedFP32',
      QUANTIZATION='int8',
    ),
    _OWN + '_Tokenized': servable.Params(
      """Llama 3.1 8B as in MLPerf: ids in and out, greedy, 1 to 128 new tokens.

      Matrices, activations and KV are int8.
      """,
      'TinyTokenizedFP32',
      **{
        **llama_sizes.attributes('llama3_8b'),
        'ROTARY_SCALING': llama_sizes.SCALING,
      },
      STOP_TOKEN_IDS=llama_sizes.STOP_IDS,
      LAYER_NORM_EPSILON=1e-5,
      MODEL_DTYPE='bfloat16',
      FPROP_DTYPE='bfloat16',
      QUANTIZATION='int8',
      KV_CACHE_DTYPE='int8',
      INPUT_SEQ_LEN=2668,
      BUCKET_KEYS=[512, 768, 1024, 1280, 1536, 2048, 2668],
    ),
    **{
      f'{_OWN}Llama31Tokenized8BINT8{name}': servable.Params(
        f'Llama 3.1 8B in int8 on TPU {name}, {slots} slots.',
        '_Tokenized',
        ICI_MESH_SHAPE=mesh,
        NUM_CACHE_SLOTS=slots,
      )
      for name, (mesh, slots) in _SLICES.items()
    },
    _OWN + 'Llama31Tokenized8BBF16H100': servable.Params(
      'Llama 3.1 8B in bfloat16 on an NVIDIA H100, 128 slots.',
      '_Tokenized',
      ICI_MESH_SHAPE=[1, 1, 1],
      QUANTIZATION='none',
      KV_CACHE_DTYPE=None,
      NUM_CACHE_SLOTS=128,
    ),
    _OWN + 'Llama33Tokenized70BBF16V6E2x4': servable.Params(
      """Llama 3.3 70B in bfloat16 on TPU v6e 2x4, 64 slots.

      The lengths are those of a published measurement; see
      `benchmarks/tpu_estimate/predict.py`.
      """,
      '_Tokenized',
      **{
        **llama_sizes.attributes('llama3_70b'),
        'ROTARY_SCALING': llama_sizes.SCALING,
      },
      ICI_MESH_SHAPE=[1, 1, 8],
      QUANTIZATION='none',
      KV_CACHE_DTYPE=None,
      NUM_CACHE_SLOTS=64,
      INPUT_SEQ_LEN=1024,
      BUCKET_KEYS=[1024],
      MAX_DECODE_STEPS=1024,
      EXTRA_INPUTS={'per_example_max_decode_steps': 1024},
    ),
  },
  serving=_ANY,
  published=llama_sizes.SIZES,
)


def relative(
  name: str,
  title: str,
  config: Mapping[str, Any],
  switches: Mapping[str, Any] | None = None,
  tensors: Mapping[str, tuple[str, ...]] | None = None,
  **changes: Any,
) -> family.Family:
  """Returns a family that differs from Llama in few things.

  By default, its serving params are those of any Llama, and its PAX checkpoints
  rotate the halves of a head.

  Args:
    name: The `model_type`.
    title: The name in messages and of the serving params.
    config: The fields of CONFIG that differ.
    switches: The fields of the architecture that differ.
    tensors: The tensors that differ, by field.
    **changes: Further fields of the family that differ.
  """
  params = f'saxml_ext.params.{name}.Any{title}'
  doc = f'A {title} of any size, with the settings of AnyLlama.'
  return dataclasses.replace(
    FAMILY,
    name=name,
    title=title,
    architecture=dataclasses.replace(
      FAMILY.architecture, **{'interleaved': False, **(switches or {})}
    ),
    config=dataclasses.replace(CONFIG, **config),
    tensors={**FAMILY.tensors, **(tensors or {})},
    **{
      'params': {params: servable.Params(doc, _ANY, ARCHITECTURE=name)},
      'serving': params,
      'published': {},
      **changes,
    },
  )
