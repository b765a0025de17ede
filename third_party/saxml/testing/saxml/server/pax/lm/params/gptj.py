"""Stand-in for upstream's GPT-J: its classes' names, attributes and values.

Its task is a record of what upstream would build a Pax task of.
"""

import dataclasses
from typing import Any

from jax import numpy as jnp
from saxml.server import servable_model_registry
from saxml.server.pax.lm.params import template


@dataclasses.dataclass(frozen=True)
class Task:
  """Stands for the configuration of a Pax task.

  Attributes:
    sizes: num_layers, model_dims, hidden_dims, num_heads, dim_per_head and
      vocab_size.
    dtypes: of parameters and of activations.
    quantization: arguments of the decorator, None without it.
  """

  sizes: tuple[int, ...]
  dtypes: tuple[Any, Any]
  quantization: dict[str, Any] | None = None


@servable_model_registry.register
@template.make_servable()
class GPTJ:
  """Float32, one request at a time."""

  NUM_LAYERS = 28
  MODEL_DIMS = 4096
  HIDDEN_DIMS = 16384
  NUM_HEADS = 16
  DIMS_PER_HEAD = 256
  VOCAB_SIZE = 50401
  ROTARY_DIM = 64
  MAX_POSITION_EMBEDDINGS = 2048
  LAYER_NORM_EPSILON = 1.0e-05
  NORM_POLICY = 'pre'
  MODEL_DTYPE = FPROP_DTYPE = jnp.float32
  VOCABULARY_CLASS = 'GPT2BPEVocabulary'
  VOCABULARY_PATH = 'gs://bucket/vocabulary'
  SOS_ID = EOS_ID = 50256
  EOS_PADDING_AND_NO_SOS = True
  ICI_MESH_SHAPE = [1, 1, 1]
  DCN_MESH_SHAPE = DECODE_MESH_TRANSPOSE = None
  TRAINING_OPTIMIZED_SHARDING = False
  BATCH_SIZE = NUM_SAMPLES = 1
  BATCH_WAIT_SECS = 0.2
  MAX_LIVE_BATCHES = 2
  FPROP_FOR_PREFIX = True
  INPUT_SEQ_LEN = 1919
  MIN_DECODE_STEPS = 30
  MAX_DECODE_STEPS = 128
  USE_BEAM_SEARCH = True
  BEAM_SIZE = TOKENS_PER_BEAM = 4
  LENGTH_NORM_ALPHA = 0.5
  EXTRA_INPUTS = {
      'per_example_max_decode_steps': 128,
      'per_example_top_k': 200,
      'per_example_top_p': 0.95,
      'temperature': 0.5,
  }

  def task(self) -> Task:
    sizes = (
        self.NUM_LAYERS,
        self.MODEL_DIMS,
        self.HIDDEN_DIMS,
        self.NUM_HEADS,
        self.DIMS_PER_HEAD,
        self.VOCAB_SIZE,
    )
    return Task(sizes=sizes, dtypes=(self.MODEL_DTYPE, self.FPROP_DTYPE))


@servable_model_registry.register
class GPTJ4BF16BS32(GPTJ):
  """Bfloat16 on 4 chips, 32 at a time."""

  ICI_MESH_SHAPE = [1, 1, 4]
  DECODE_MESH_TRANSPOSE = {'mdl': 'fprop_mdl', 'fprop_mdl': 'mdl'}
  MODEL_DTYPE = FPROP_DTYPE = jnp.bfloat16
  BATCH_SIZE = 32
  BATCH_WAIT_SECS = 4.0
  MAX_LIVE_BATCHES = 6
  BUCKET_KEYS = [512, 1024, 1919]
  MAX_DECODE_STEPS = [32, 64, 128]
  USE_MATMUL_BEAM_SHUFFLE = True

  @classmethod
  def serving_mesh_shape(cls):
    return [1, 1, 1, 1, 4]


@servable_model_registry.register
class GPTJ4TokenizedBF16BS32(GPTJ4BF16BS32):
  """The same with ids in and out."""

  TOKENIZED_INPUT = TOKENIZED_OUTPUT = True
