"""Serving params of GPT-J: upstream's names, and the bundled small model's.

Class names, sizes and batching attributes are those that upstream Sax and the
published MLPerf GPT-J submissions on Sax use, so that their publish commands
work here unchanged. Two things differ on purpose: beams follow the reference's
rule unless BEAM_RULE says otherwise, and VOCABULARY_PATH is left to the
checkpoint's own tokenizer.json, as upstream's names a bucket of its own.
"""

from saxml_ext.params import registry
from saxml_ext.params import template

_UPSTREAM = 'saxml.server.pax.lm.params.gptj.'
_OWN = 'saxml_ext.params.gptj.'


@registry.register(_UPSTREAM + 'GPTJ')
class GPTJ(template.ServableLMParams):
  """GPT-J 6B in float32, text in and out, one request at a time."""

  NUM_LAYERS = 28
  MODEL_DIMS = 4096
  HIDDEN_DIMS = 16384
  NUM_HEADS = 16
  DIMS_PER_HEAD = 256
  ROTARY_DIM = 64
  MAX_POSITION_EMBEDDINGS = 2048
  LAYER_NORM_EPSILON = 1.0e-5
  # The tokenizer's 50257 ids, padded, as the checkpoint converter cuts it.
  VOCAB_SIZE = 50401

  VOCABULARY_CLASS = 'GPT2BPEVocabulary'
  SOS_ID = 50256
  EOS_ID = 50256
  EOS_PADDING_AND_NO_SOS = True

  ICI_MESH_SHAPE = [1, 1, 1]
  BATCH_SIZE = 1
  BATCH_WAIT_SECS = 0.2
  MAX_LIVE_BATCHES = 2

  # Prompt and answer together fill all but one of the 2048 positions.
  INPUT_SEQ_LEN = 1919
  MIN_DECODE_STEPS = 30
  MAX_DECODE_STEPS = 128

  NUM_SAMPLES = 1
  USE_BEAM_SEARCH = True
  BEAM_SIZE = 4
  TOKENS_PER_BEAM = 4
  LENGTH_NORM_ALPHA = 0.5
  BEAM_SEARCH_EARLY_EXIT = False
  EXTRA_INPUTS = {
      'temperature': 0.5,
      'per_example_max_decode_steps': 128,
      'per_example_top_k': 200,
      'per_example_top_p': 0.95,
  }


@registry.register(_UPSTREAM + 'GPTJ4BF16BS32')
class GPTJ4BF16BS32(GPTJ):
  """GPT-J 6B in bfloat16, 32 at a time, written for 4 chips."""

  ICI_MESH_SHAPE = [1, 1, 4]
  DECODE_MESH_TRANSPOSE = {'fprop_mdl': 'mdl', 'mdl': 'fprop_mdl'}
  MODEL_DTYPE = 'bfloat16'
  FPROP_DTYPE = 'bfloat16'
  USE_MATMUL_BEAM_SHUFFLE = True
  BATCH_SIZE = 32
  BATCH_WAIT_SECS = 4.0
  MAX_LIVE_BATCHES = 6
  BUCKET_KEYS = [512, 1024, 1919]
  MAX_DECODE_STEPS = [32, 64, 128]


@registry.register(_UPSTREAM + 'GPTJ4TokenizedBF16BS32')
class GPTJ4TokenizedBF16BS32(GPTJ4BF16BS32):
  """The same with comma-separated ids in and out, as MLPerf sends them."""

  TOKENIZED_INPUT = True
  TOKENIZED_OUTPUT = True


@registry.register(_UPSTREAM + 'GPTJ4INT8BS32')
class GPTJ4INT8BS32(GPTJ4BF16BS32):
  """GPT-J 6B with int8 matrices, 32 at a time, written for 4 chips.

  The int8 submissions had int8 checkpoints; a float one is quantized as it is
  loaded.
  """

  QUANTIZATION = 'int8'


@registry.register(_UPSTREAM + 'GPTJ4TokenizedINT8BS32')
class GPTJ4TokenizedINT8BS32(GPTJ4INT8BS32):
  """The same with comma-separated ids in and out, as MLPerf sends them."""

  TOKENIZED_INPUT = True
  TOKENIZED_OUTPUT = True


@registry.register(_UPSTREAM + 'GPTJ4TokenizedINT8BS32XLA')
class GPTJ4TokenizedINT8BS32XLA(GPTJ4TokenizedINT8BS32):
  """The same; upstream's server compiles it with the submissions' flags."""


@registry.register(_UPSTREAM + 'GPTJ4TokenizedINT8BS32XLAEarly')
class GPTJ4TokenizedINT8BS32XLAEarly(GPTJ4TokenizedINT8BS32XLA):
  """The same; Pax's beams stop once all have ended."""

  BEAM_SEARCH_EARLY_EXIT = True


@registry.register(_UPSTREAM + 'GPTJ4TokenizedINT8BS32XLAWait40MB6')
class GPTJ4TokenizedINT8BS32XLAWait40MB6(GPTJ4TokenizedINT8BS32XLAEarly):
  """The same: 4.0 s batch wait and 6 live batches."""

  BATCH_WAIT_SECS = 4.0
  MAX_LIVE_BATCHES = 6


@registry.register(_UPSTREAM + 'GPTJ4TokenizedINT8BS32XLAWait40MB6Offline')
class GPTJ4TokenizedINT8BS32XLAWait40MB6Offline(
    GPTJ4TokenizedINT8BS32XLAWait40MB6
):
  """MLPerf v4.0, Offline."""


@registry.register(_UPSTREAM + 'GPTJ4TokenizedINT8BS32XLAWait40MB6Server')
class GPTJ4TokenizedINT8BS32XLAWait40MB6Server(
    GPTJ4TokenizedINT8BS32XLAWait40MB6
):
  """MLPerf v4.0, Server."""


@registry.register(_OWN + 'TinyTokenizedFP32')
class TinyTokenizedFP32(template.ServableLMParams):
  """The bundled model in float32, ids in and out.

  Sizes of the model are read off its checkpoint.
  """

  ICI_MESH_SHAPE = [1, 1, 1]
  VOCAB_SIZE = None
  EOS_ID = None
  EOS_PADDING_AND_NO_SOS = True
  TOKENIZED_INPUT = True
  TOKENIZED_OUTPUT = True

  # Requests decoded per CPU second grow by a tenth from 8 slots to 32.
  BATCH_SIZE = 32
  # An Offline run sends its whole set at once: 1,024 requests may wait.
  MAX_LIVE_BATCHES = 32

  INPUT_SEQ_LEN = 512
  # The bundled prompts have 130 to 370 tokens, half of them less than 210.
  BUCKET_KEYS = [192, 256, 320, 512]
  MIN_DECODE_STEPS = 30
  MAX_DECODE_STEPS = 128

  NUM_SAMPLES = 1
  USE_BEAM_SEARCH = True
  BEAM_SIZE = 4
  EXTRA_INPUTS = {'per_example_max_decode_steps': 128}


@registry.register(_OWN + 'TinyTokenizedINT8')
class TinyTokenizedINT8(TinyTokenizedFP32):
  """The bundled model with int8 matrices, ids in and out."""

  QUANTIZATION = 'int8'


@registry.register(_OWN + 'TinyFP32')
class TinyFP32(TinyTokenizedFP32):
  """The bundled model in float32, text in and out."""

  TOKENIZED_INPUT = False
  TOKENIZED_OUTPUT = False


@registry.register(_OWN + 'TinySampleFP32')
class TinySampleFP32(TinyFP32):
  """The bundled model in float32, sampling texts instead of searching beams."""

  USE_BEAM_SEARCH = False
  NUM_SAMPLES = 2
  TOP_K = 40
  TEMPERATURE = 1.0
  MIN_DECODE_STEPS = 0
  EXTRA_INPUTS = {
      'temperature': 1.0,
      'per_example_max_decode_steps': 128,
      'per_example_top_k': 40,
      'per_example_top_p': 1.0,
      # Ids that end an answer, 0 for none; the model's own if there are none.
      'eos_id': [0, 0, 0, 0],
      # A seed: the same one gives the same samples. Sax's own value draws one.
      'gumbel_prng_key': 15753,
  }
