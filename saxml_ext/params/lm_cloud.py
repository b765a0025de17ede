"""Serving params of the LmCloudSpmd models, under the names stock Sax has.

Cloud TPU's guide to serving on several hosts publishes these: 2 and 175 billion
parameters, with one class for each number of chips. Those whose names end in
Test are test params, which may be published with checkpoint `None` and have
random weights then. Sizes are those of the Pax experiments that they serve.

Importing this module registers all of them.

Upstream computes in bfloat16 with weights that are stored in float32; here the
weights are bfloat16 as well, as which upstream uses them.
"""

import pathlib

from saxml_ext.params import registry
from saxml_ext.params import template

_MODULE = 'saxml.server.pax.lm.params.lm_cloud.'
# Of 1,024 pieces, with 0 for the start and 1 for the end, as these params have
# it; `bazel run //bundled/gptj:vocabulary` makes it.
SMALL_VOCABULARY = str(
  pathlib.Path(__file__).parent / 'vocabulary' / 'small.model'
)


@registry.register(_MODULE + 'LmCloudSpmd2B')
class LmCloudSpmd2B(template.ServableLMParams):
  """2 billion parameters, written for 4 chips: two samples of 32 tokens."""

  ARCHITECTURE = 'lm_cloud'
  NUM_LAYERS = 18
  MODEL_DIMS = 3072
  HIDDEN_DIMS = 12288
  DIMS_PER_HEAD = 128
  # Positions are added to the embeddings instead.
  ROTARY_DIM = 0
  # praxis' default.
  LAYER_NORM_EPSILON = 1.0e-6
  ATTEN_LOGIT_CAP = 50.0
  SOFTMAX_CAP_LOGITS = 30.0
  MODEL_DTYPE = 'bfloat16'
  FPROP_DTYPE = 'bfloat16'

  # Any other is given as an override; upstream names one for tests, too.
  SPM_MODEL = SMALL_VOCABULARY
  ICI_MESH_SHAPE = [1, 1, 4]
  MAX_SEQ_LEN = 1024


@registry.register(_MODULE + 'LmCloudSpmd2BTest')
class LmCloudSpmd2BTest(LmCloudSpmd2B):
  """The same on one chip, with random weights."""

  ICI_MESH_SHAPE = [1, 1, 1]
  test_mode = True


@registry.register(_MODULE + 'LmCloudSpmd175B')
class LmCloudSpmd175B(LmCloudSpmd2B):
  """175 billion parameters in int8, on 16 chips: one sample of 128 tokens."""

  NUM_LAYERS = 96
  MODEL_DIMS = 12288
  HIDDEN_DIMS = 49152
  NUM_HEADS = 96
  # As in stock Sax, where activations stay in bfloat16.
  QUANTIZATION = 'int8_weights'
  ICI_MESH_SHAPE = [1, 1, 16]

  NUM_SAMPLES = 1
  INPUT_SEQ_LEN = 128
  MAX_DECODE_STEPS = 128
  EXTRA_INPUTS = {
    'temperature': 0.5,
    'per_example_max_decode_steps': 128,
    'per_example_top_k': 200,
    'per_example_top_p': 0.95,
  }


@registry.register(_MODULE + 'LmCloudSpmd175BTest')
class LmCloudSpmd175BTest(LmCloudSpmd175B):
  """The same with random weights."""

  test_mode = True


def _register(base: type, billions: int, chips: int) -> None:
  name = f'LmCloudSpmd{billions}B{chips}Test'
  attributes = {
    '__doc__': f'{base.__name__} on {chips} chips.',
    '__module__': __name__,
    'ICI_MESH_SHAPE': [1, 1, chips],
  }
  registry.register(_MODULE + name)(type(name, (base,), attributes))


for _chips in (4, 8, 16, 32):
  _register(LmCloudSpmd2BTest, 2, _chips)
for _chips in (32, 64, 128, 256):
  _register(LmCloudSpmd175BTest, 175, _chips)
