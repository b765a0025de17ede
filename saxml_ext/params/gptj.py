"""Serving params of GPT-J: the bundled small model's and the published ones.

Importing this module registers all of them; the published ones, which have
names of upstream Sax, are in `published`, those of program sets for TPU in
`gptj_tpu`.
"""

from saxml_ext.params import gptj_tpu  # noqa: F401 Registers or sets up.
from saxml_ext.params import published
from saxml_ext.params import registry
from saxml_ext.params import template

_OWN = 'saxml_ext.params.gptj.'


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
  # Half of the bundled prompts have less than 210 tokens, 1 in 27 is cut.
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


@registry.register(_OWN + 'AnyGPTJ')
class AnyGPTJ(TinySampleFP32):
  """A GPT-J of any size for all kinds of requests, as `//:serve` publishes it.

  Text in and out; each request chooses beams or samples, and may be streamed.
  The publisher overrides lengths, slots and number formats to fit the model.
  """

  ENABLE_GENERATE_STREAM = True
  MIXED_SEARCH = True
  NUM_SAMPLES = 4
  # The most that OpenAI's API knows, in chat completions.
  MAX_LOGPROBS = 20
  FAIL_ON_INPUT_TRUNCATION = True
  BATCH_SIZE = 16


@registry.register(_OWN + 'GPTJTokenizedINT8Test')
class GPTJTokenizedINT8Test(
  published.GPTJ4TokenizedINT8BS32XLAWait40MB6Offline
):
  """GPT-J 6B as submitted, for random weights: a step takes its time, too."""

  test_mode = True
