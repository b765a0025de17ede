"""Defines LmCloudSpmd, paxml's example of a language model, without tokenizer.

The serving params have the names of stock Sax. Cloud TPU's guide to serving on
several hosts uses params with 2 and 175 billion parameters, with one class for
each number of chips. Classes whose names end in Test are test params. They can
be published with checkpoint `None`, and then have random weights. The sizes are
those of the Pax experiments that the params serve.

Upstream stores weights in float32 and computes in bfloat16. Here the weights
are stored in bfloat16, which gives the same computation.
"""

import pathlib

from saxml_ext.engine import architecture
from saxml_ext.families import family
from saxml_ext.families import servable

# A vocabulary of 1,024 pieces. As these params require, 0 is the start and 1 is
# the end. `bazel run //bundled/gptj:vocabulary` makes the file.
SMALL_VOCABULARY = str(
  pathlib.Path(__file__).parent / 'vocabulary' / 'small.model'
)

_MODULE = 'saxml.server.pax.lm.params.lm_cloud.'

TABLE: servable.Table = {
  _MODULE + 'LmCloudSpmd2B': servable.Params(
    '2 billion parameters, written for 4 chips: two samples of 32 tokens.',
    ARCHITECTURE='lm_cloud',
    NUM_LAYERS=18,
    MODEL_DIMS=3072,
    HIDDEN_DIMS=12288,
    DIMS_PER_HEAD=128,
    # Positions are added to the embeddings instead.
    ROTARY_DIM=0,
    # The default of praxis.
    LAYER_NORM_EPSILON=1.0e-6,
    ATTEN_LOGIT_CAP=50.0,
    SOFTMAX_CAP_LOGITS=30.0,
    MODEL_DTYPE='bfloat16',
    FPROP_DTYPE='bfloat16',
    # An override can set another vocabulary. Upstream also uses a test
    # vocabulary.
    SPM_MODEL=SMALL_VOCABULARY,
    ICI_MESH_SHAPE=[1, 1, 4],
    MAX_SEQ_LEN=1024,
  ),
  _MODULE + 'LmCloudSpmd2BTest': servable.Params(
    'The same on one chip, with random weights.',
    'LmCloudSpmd2B',
    ICI_MESH_SHAPE=[1, 1, 1],
    test_mode=True,
  ),
  _MODULE + 'LmCloudSpmd175B': servable.Params(
    '175 billion parameters in int8, on 16 chips: one sample of 128 tokens.',
    'LmCloudSpmd2B',
    NUM_LAYERS=96,
    MODEL_DIMS=12288,
    HIDDEN_DIMS=49152,
    NUM_HEADS=96,
    # In stock Sax, the activations stay in bfloat16.
    QUANTIZATION='int8_weights',
    ICI_MESH_SHAPE=[1, 1, 16],
    NUM_SAMPLES=1,
    INPUT_SEQ_LEN=128,
    MAX_DECODE_STEPS=128,
    EXTRA_INPUTS=servable.EXTRA_INPUTS,
  ),
  _MODULE + 'LmCloudSpmd175BTest': servable.Params(
    'The same with random weights.', 'LmCloudSpmd175B', test_mode=True
  ),
  **{
    f'{_MODULE}LmCloudSpmd{size}{chips}Test': servable.Params(
      f'LmCloudSpmd{size}Test on {chips} chips.',
      f'LmCloudSpmd{size}Test',
      ICI_MESH_SHAPE=[1, 1, chips],
    )
    for size, counts in (('2B', (4, 8, 16, 32)), ('175B', (32, 64, 128, 256)))
    for chips in counts
  },
}

FAMILY = family.Family(
  name='lm_cloud',
  title='LmCloudSpmd',
  architecture=architecture.LM_CLOUD,
  ln_direct_scale=False,
  params=TABLE,
)
