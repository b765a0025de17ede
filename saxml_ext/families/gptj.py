"""Defines the GPT-J family, with one norm for attention and feed-forward.

The outputs of attention and feed-forward are added.

The module `gptj_published` has the serving params that others published. The
params here serve the bundled small model, a GPT-J of any size, and GPT-J 6B on
TPU. `//saxml_ext/aot` compiles the programs for TPU ahead of time. The params
for TPU are those of the submission to MLPerf Inference v4.0, except for the
devices and the slots.

Sax decodes batches of 32. This server decodes as many requests at once as the
memory of the chips allows, which increases its throughput. The compiled
programs fit into memory with these numbers of slots. `summary.txt` of each set
reports the memory use.
"""

import re

from saxml_ext.engine import architecture
from saxml_ext.families import family
from saxml_ext.families import gptj_published
from saxml_ext.families import hf_config
from saxml_ext.families import servable

_LAYER = 'transformer.h.{layer}.'
_OWN = 'saxml_ext.params.gptj.'
ANY = _OWN + 'AnyGPTJ'
TOKENIZED = _OWN + 'TinyTokenizedFP32'
_SUBMITTED = (
  'saxml.server.pax.lm.params.gptj.GPTJ4TokenizedINT8BS32XLAWait40MB6Offline'
)

# The mesh [replica, data, model] and the slots in int8 and bfloat16, by slice.
SLICES = {
  'V5E1x1': ([1, 1, 1], 15, 5),
  'V5E2x2': ([1, 1, 4], 96, 84),
  'V5E2x4': ([1, 2, 4], 192, 168),
  'V5E4x4': ([1, 4, 4], 384, 336),
  'V6E2x2': ([1, 1, 4], 208, 192),
  'V5P2x2': ([1, 1, 4], 384, 384),
  'V7X2x2': ([1, 1, 8], 512, 512),
}

TABLE: servable.Table = {
  TOKENIZED: servable.Params(
    """The bundled model in float32, ids in and out.

    Sizes of the model are read off its checkpoint.
    """,
    ICI_MESH_SHAPE=[1, 1, 1],
    VOCAB_SIZE=None,
    EOS_ID=None,
    EOS_PADDING_AND_NO_SOS=True,
    TOKENIZED_INPUT=True,
    TOKENIZED_OUTPUT=True,
    # From 8 to 32 slots, the requests decoded per CPU second increase by 10%.
    BATCH_SIZE=32,
    # An Offline run sends all its samples at once, so up to 1,024 requests can
    # wait.
    MAX_LIVE_BATCHES=32,
    INPUT_SEQ_LEN=512,
    # Half of the bundled prompts have fewer than 210 tokens; 1 in 27 is
    # truncated.
    BUCKET_KEYS=[192, 256, 320, 512],
    MIN_DECODE_STEPS=30,
    MAX_DECODE_STEPS=128,
    NUM_SAMPLES=1,
    USE_BEAM_SEARCH=True,
    BEAM_SIZE=4,
    EXTRA_INPUTS={'per_example_max_decode_steps': 128},
  ),
  _OWN + 'TinyTokenizedINT8': servable.Params(
    'The bundled model with int8 matrices, ids in and out.',
    'TinyTokenizedFP32',
    QUANTIZATION='int8',
  ),
  _OWN + 'TinyFP32': servable.Params(
    'The bundled model in float32, text in and out.',
    'TinyTokenizedFP32',
    TOKENIZED_INPUT=False,
    TOKENIZED_OUTPUT=False,
  ),
  _OWN + 'TinySampleFP32': servable.Params(
    'The bundled model in float32, with sampling instead of beam search.',
    'TinyFP32',
    USE_BEAM_SEARCH=False,
    NUM_SAMPLES=2,
    TOP_K=40,
    TEMPERATURE=1.0,
    MIN_DECODE_STEPS=0,
    EXTRA_INPUTS={
      'temperature': 1.0,
      'per_example_max_decode_steps': 128,
      'per_example_top_k': 40,
      'per_example_top_p': 1.0,
      # The ids that end an answer, padded with 0. If all are 0, the model's own
      # ids apply.
      'eos_id': [0, 0, 0, 0],
      # The seed. The same seed gives the same samples. The value of Sax
      # requests a random seed.
      'gumbel_prng_key': 15753,
    },
  ),
  ANY: servable.Params(
    """A GPT-J of any size for all kinds of requests; `//:serve` publishes it.

    Text in and out. Each request chooses beams or samples, and may be streamed.
    Texts begin with the start token that the tokenizer adds to them, if any.
    The publisher overrides lengths, slots and number formats to fit the model.
    """,
    'TinySampleFP32',
    EOS_PADDING_AND_NO_SOS=False,
    SOS_ID=None,
    ENABLE_GENERATE_STREAM=True,
    MIXED_SEARCH=True,
    # As clients of OpenAI's API expect, samples come from all tokens.
    TOP_K=0,
    NUM_SAMPLES=4,
    # The maximum of OpenAI's API in chat completions.
    MAX_LOGPROBS=20,
    FAIL_ON_INPUT_TRUNCATION=True,
    COMPILE_BEHIND=True,
    BATCH_SIZE=16,
  ),
  _OWN + 'GPTJTokenizedINT8Test': servable.Params(
    'GPT-J 6B as submitted, with random weights.', _SUBMITTED, test_mode=True
  ),
  _OWN + '_Tokenized': servable.Params(
    'Ids in and out, in int8 throughout: matrices, activations, KV.',
    _SUBMITTED,
    # The fine-tuned checkpoint of MLPerf has this vocabulary.
    VOCAB_SIZE=50401,
    KV_CACHE_DTYPE='int8',
    # The submission has two buckets fewer. More buckets mean less padding.
    # According to docs/aot_report.md, the two increase the throughput by 10%.
    BUCKET_KEYS=[512, 768, 1024, 1280, 1536, 1919],
  ),
  _OWN + '_BF16': servable.Params(
    'The same in bfloat16, with an int8 KV cache.',
    '_Tokenized',
    QUANTIZATION='none',
  ),
  _OWN + 'GPTJTokenizedINT8H100': servable.Params(
    'GPT-J 6B in INT8 on an NVIDIA H100, 96 slots.',
    '_Tokenized',
    ICI_MESH_SHAPE=[1, 1, 1],
    NUM_CACHE_SLOTS=96,
  ),
  **{
    f'{_OWN}GPTJTokenized{numbers}{name}': servable.Params(
      f'GPT-J 6B in {numbers} on TPU {name}, {slots} slots.',
      base,
      ICI_MESH_SHAPE=mesh,
      NUM_CACHE_SLOTS=slots,
    )
    for name, (mesh, *by_numbers) in SLICES.items()
    for (numbers, base), slots in zip(
      (('INT8', '_Tokenized'), ('BF16', '_BF16')), by_numbers
    )
  },
}

FAMILY = family.Family(
  name='gptj',
  title='GPT-J',
  architecture=architecture.GPTJ,
  config=hf_config.Table(
    'GPTJForCausalLM',
    keys={
      'num_layers': 'n_layer',
      'model_dim': 'n_embd',
      'num_heads': 'n_head',
      'hidden_dim': 'n_inner',
      'max_positions': 'n_positions',
      'rotary_dim': 'rotary_dim',
      'ln_epsilon': 'layer_norm_epsilon',
    },
    defaults={
      'hidden_dim': 4,
      'max_positions': 2048,
      'rotary_dim': 64,
      'ln_epsilon': 1e-5,
      'bos_id': 50256,
      'eos_id': 50256,
    },
    accepted={'activation_function': hf_config.GELU_TANH_NAMES},
    aliases={
      'max_position_embeddings': 'n_positions',
      'hidden_size': 'n_embd',
      'num_attention_heads': 'n_head',
      'num_hidden_layers': 'n_layer',
    },
  ),
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
  # Older versions of transformers saved these masks and tables.
  buffers=re.compile(
    r'transformer\.h\.\d+\.attn\.(bias|masked_bias|embed_positions)'
  ),
  params={**gptj_published.TABLE, **TABLE},
  serving=ANY,
  published={
    'gpt-j-6b': hf_config.HFConfig(28, 4096, 16, 16384, 50400, rotary_dim=64)
  },
)
