"""Defines Llama's serving params under the names of stock Sax.

Values and inheritance are those of google/saxml's lm_cloud.py, at release
r1.2.0 and at the last version of its main branch. Where both have a name, the
values are those of the main branch. These differ on purpose:

- SPM_MODEL and VOCABULARY_PATH are not set, so the tokenizer beside the
  checkpoint is used. The values of upstream name buckets of its authors.
- Llama 3 also stops at the end ids of its instruct models.
- Classes with a wrong size have the size of the model in their name. See
  docs/serving_params.md for the faults of each class.

QUANTIZATION = 'int8_weights' replaces a class decorator of upstream.
"""

from typing import Any

from saxml_ext.families import llama_sizes
from saxml_ext.families import servable

_MODULE = 'saxml.server.pax.lm.params.lm_cloud.'
_MANY_STEPS = {**servable.EXTRA_INPUTS, 'per_example_max_decode_steps': 1024}
_MLPERF = {
  'temperature': 0.0,
  'per_example_max_decode_steps': 1024,
  'per_example_top_k': 1,
  'per_example_top_p': None,
}
# One length for all prompts and for all answers, greedy unless a request has
# another top k.
_LONG: dict[str, Any] = dict(
  NUM_SAMPLES=1, TOP_K=1, INPUT_SEQ_LEN=1024, MAX_DECODE_STEPS=1024
)


def _sized(
  doc: str, base: str, size: str, chips: int = 1, **more: Any
) -> servable.Params:
  attributes = llama_sizes.attributes(size)
  return servable.Params(
    doc, base, **attributes, ICI_MESH_SHAPE=[1, 1, chips], **more
  )


def _chips(doc: str, base: str, chips: int, **more: Any) -> servable.Params:
  return servable.Params(doc, base, ICI_MESH_SHAPE=[1, 1, chips], **more)


_CLASSES = {
  '_LLaMA': servable.Params(
    'The common settings of all classes: bfloat16, text in and out, sampled.',
    ARCHITECTURE='llama',
    LAYER_NORM_EPSILON=1.0e-5,
    MODEL_DTYPE='bfloat16',
    FPROP_DTYPE='bfloat16',
    SOS_ID=1,
    EOS_ID=2,
    ICI_MESH_SHAPE=[1, 1, 1],
    NUM_SAMPLES=1,
    GENERATE_ONLY=True,
    ENABLE_GENERATE_STREAM=True,
    STREAM_INTERVAL_STEPS=16,
    INPUT_SEQ_LEN=4096,
    BUCKET_KEYS=[128, 1024, 4096],
    MAX_DECODE_STEPS=[128, 512, 1024],
    EXTRA_INPUTS=servable.EXTRA_INPUTS,
  ),
  'LLaMA7BFP16': _sized(
    'Llama 7B, answers of 32 tokens.',
    '_LLaMA',
    '7b',
    INPUT_SEQ_LEN=128,
    BUCKET_KEYS=None,
    MAX_DECODE_STEPS=32,
    ENABLE_GENERATE_STREAM=False,
  ),
  'LLaMA7BFP16TPUv4': _chips(
    'The same on 4 chips, or with random weights.',
    'LLaMA7BFP16',
    4,
    test_mode=True,
  ),
  'LLaMA7BFP16TPUv5e': _chips(
    'The same on 4 chips.',
    'LLaMA7BFP16',
    4,
    BATCH_SIZE=[1],
    BUCKET_KEYS=[128],
    MAX_DECODE_STEPS=[32],
  ),
  'LLaMA7B': _sized(
    'Llama 7B, answers of 1,024 tokens, or with random weights.',
    '_LLaMA',
    '7b',
    test_mode=True,
  ),
  'LLaMA7BTPUv5e4': _chips(
    'Llama 7B, 32 requests at a time on 4 chips.',
    'LLaMA7B',
    4,
    **_LONG,
    BATCH_SIZE=32,
    BUCKET_KEYS=[1024],
    ENABLE_GENERATE_STREAM=False,
    EXTRA_INPUTS=_MANY_STEPS,
    test_mode=False,
  ),
  'LLaMA7BTPUv5e8': _chips('The same on 8 chips.', 'LLaMA7BTPUv5e4', 8),
  'LLaMA7BTPUv5e16': _chips('The same on 16 chips.', 'LLaMA7BTPUv5e4', 16),
  **{
    f'LLaMA7BContinuousBatchingTPUv5e{chips}': _chips(
      f'The same with 16 slots on {chips} chips.',
      'LLaMA7BTPUv5e4',
      chips,
      BATCH_SIZE=1,
      NUM_CACHE_SLOTS=16,
    )
    for chips in (4, 8)
  },
  'LLaMA7BH100BS8': _chips(
    'The same with 8 slots on one device.', 'LLaMA7BTPUv5e4', 1, BATCH_SIZE=8
  ),
  'LLaMA7BH100': servable.Params(
    'The same with 16 slots.', 'LLaMA7BH100BS8', NUM_CACHE_SLOTS=16
  ),
  **{
    f'LLaMA{size.upper()}': _sized(
      f'Llama {size.upper()} with int8 matrices, or with random weights.',
      '_LLaMA',
      size,
      chips,
      QUANTIZATION='int8_weights',
      test_mode=True,
    )
    for size, chips in (('13b', 1), ('33b', 4), ('65b', 4))
  },
  'LLaMA70BFP16TPUv5e': _sized(
    'Llama 2 70B, or with random weights.',
    '_LLaMA',
    '70b',
    ENABLE_GENERATE_STREAM=False,
    test_mode=True,
  ),
  'LLaMA70BFP16TPUv5e16': _chips(
    'The same on 16 chips.', 'LLaMA70BFP16TPUv5e', 16, test_mode=False
  ),
  **{
    f'LLaMA70BFP16TPUv5e{chips}': _chips(
      f'The same on {chips} chips, or with random weights.',
      'LLaMA70BFP16TPUv5e',
      chips,
    )
    for chips in (32, 64)
  },
  'LLaMA70BInt8LinearOnlyx8': _chips(
    'The same with int8 matrices on 8 chips.',
    'LLaMA70BFP16TPUv5e',
    8,
    aliases=(_MODULE + 'LLaMA70BINT8LinearOnlyx8',),
    QUANTIZATION='int8_weights',
    test_mode=False,
  ),
  'LLaMA70BInt8TPUv5e8': _chips(
    'Llama 2 70B with int8 matrices and 72 slots on 8 chips.',
    'LLaMA70BFP16TPUv5e',
    8,
    **_LONG,
    BUCKET_KEYS=None,
    NUM_CACHE_SLOTS=72,
    USE_BATCH_SHARDING=True,
    QUANTIZATION='int8_weights',
    EXTRA_INPUTS=_MLPERF,
    test_mode=False,
  ),
  'LLaMA70BInt8TPUv5e8Exp': servable.Params(
    'r1.2.0: the same with longer prompts and 60 slots, or random weights.',
    'LLaMA70BInt8TPUv5e8',
    INPUT_SEQ_LEN=2048,
    NUM_CACHE_SLOTS=60,
    EXTRA_INPUTS=servable.EXTRA_INPUTS,
    test_mode=True,
  ),
  'LLaMA70BInt8TokenizedInputTPUv5e8': servable.Params(
    'The same with comma-separated ids in and text out.',
    'LLaMA70BInt8TPUv5e8',
    TOKENIZED_INPUT=True,
  ),
  'LLaMA70BInt8TokenizedInputTPUv5e8Stream': servable.Params(
    'The same with ids in and out, only as streams.',
    'LLaMA70BInt8TokenizedInputTPUv5e8',
    TOKENIZED_OUTPUT=True,
    ENABLE_GENERATE=False,
    ENABLE_GENERATE_STREAM=True,
  ),
  'LLaMA70BFP16H100x8': _chips(
    'Llama 2 70B with 64 slots on 8 devices.',
    'LLaMA70BFP16TPUv5e',
    8,
    **_LONG,
    BUCKET_KEYS=None,
    NUM_CACHE_SLOTS=64,
    USE_BATCH_SHARDING=True,
    EXTRA_INPUTS=_MANY_STEPS,
    test_mode=False,
  ),
  'LLaMA70BInt8H100x8': servable.Params(
    'The same with int8 matrices and 128 slots.',
    'LLaMA70BFP16H100x8',
    BATCH_SIZE=32,
    NUM_CACHE_SLOTS=128,
    QUANTIZATION='int8_weights',
  ),
  'LLaMA70BInt8H100x8BS32': servable.Params(
    'The same with 32 slots.', 'LLaMA70BInt8H100x8', NUM_CACHE_SLOTS=0
  ),
  'LLaMA70BInt8H100x8Fake': servable.Params(
    'The same with 128 slots, or with random weights.',
    'LLaMA70BInt8H100x8',
    test_mode=True,
  ),
  '_LLaMA3': servable.Params(
    "Llama 3: other token ids, and no streams with stock Sax's tokenizer.",
    '_LLaMA',
    VOCABULARY_CLASS='LLama3Vocabulary',
    SOS_ID=128000,
    EOS_ID=llama_sizes.STOP_IDS[0],
    STOP_TOKEN_IDS=llama_sizes.STOP_IDS,
    ENABLE_GENERATE_STREAM=False,
  ),
  'LLaMA3_8BFP16x4': _sized(
    'Llama 3 8B on 4 chips.', '_LLaMA3', 'llama3_8b', 4
  ),
  'LLaMA3_8BFP16Testx4': servable.Params(
    'The same with random weights.', 'LLaMA3_8BFP16x4', test_mode=True
  ),
  'LLaMA3_8BFP16x1': _sized('Llama 3 8B on one chip.', '_LLaMA3', 'llama3_8b'),
  **{
    f'LLaMA3_70BFP16x{chips}': _sized(
      f'Llama 3 70B on {chips} chips.', '_LLaMA3', 'llama3_70b', chips
    )
    for chips in (16, 8)
  },
  'LLaMA3_70BInt8LinearOnlyx8': _chips(
    'The same with int8 matrices on 8 chips.',
    'LLaMA3_70BFP16x16',
    8,
    QUANTIZATION='int8_weights',
  ),
  'LLaMA31_405BFP16x64': _sized(
    "Llama 3.1 405B on 64 chips, from Meta's checkpoint of 16 shards.",
    '_LLaMA3',
    'llama3_405b_mp16',
    64,
  ),
  'LLaMA31_405BLinearOnlyInt8x32': _chips(
    'The same with int8 matrices on 32 chips.',
    'LLaMA31_405BFP16x64',
    32,
    QUANTIZATION='int8_weights',
  ),
}

TABLE: servable.Table = {
  _MODULE + name: params for name, params in _CLASSES.items()
}
