"""What this server can do of what serving params may ask for.

An attribute of the template is followed, refused unless it has the one value
that is followed, or of no concern to what is answered. A test sees to it that
every attribute is one of these.
"""

from collections.abc import Mapping
from typing import Any

from saxml_ext.common import errors
from saxml_ext.engine import config as config_lib
from saxml_ext.families import all as families
from saxml_ext.params import template

# QUANTIZATION -> what the engine calls it.
QUANTIZATIONS = {'none': None, 'int8': 'int8', 'int8_weights': 'int8_weights'}

# Attribute -> the values that are followed.
CHOICES: Mapping[str, tuple[Any, ...]] = {
  'ARCHITECTURE': tuple(families.FAMILIES),
  'FPROP_DTYPE': config_lib.DTYPES,
  'MODEL_DTYPE': config_lib.DTYPES,
  'QUANTIZATION': tuple(QUANTIZATIONS),
  'KV_CACHE_DTYPE': (None, *config_lib.KV_DTYPES),
  'BEAM_RULE': ('reference', 'pax'),
  'VOCABULARY_CLASS': (None, 'GPT2BPEVocabulary'),
  'NUM_EXTRA_IDS': (0,),
  'REVERSE_EXTRA_IDS': (True,),
  'EMB_LOOKUP_STYLE': ('index',),
  'EXTRA_INPUTS_DTYPES': ({},),
  'NEXT_TOKEN_SAMPLER_TPL': (None,),
  'TOP_K_RECALL_TARGET': (1.0,),
  'USE_TOP_K_FOR_LOGPROBS': (False,),
  'GLOBAL_NORMALIZE': (False,),
  'SORT_SAMPLES': (True,),
  'GENERATION_USE_GEOMEAN_PROB_SCORE': (False,),
  'SCORING_USE_GEOMEAN_PROB_SCORE': (False,),
  'SCORING_INCLUDE_EOS_SCORE': (False,),
  'INCLUDE_EOS_SCORE': (False,),
  'PRECOMPUTE_KV_CACHE_PREFIX': (None,),
  'FETCH_PREFIX_LENGTHS_FROM_INPUTS': (False,),
  'POLYMORPHIC_SEQ_LEN_EXCLUSION': (None,),
  'TEXT_TO_EMBEDDING_SERVING_BATCH_SIZE': (1,),
  'TEXT_TO_EMBEDDING_MAX_LIVE_BATCHES': (1,),
  'TEXT_TO_EMBEDDING_OUTPUT_EMBEDDING_NAME': (None, *config_lib.EMBEDDINGS),
  'TEXT_TO_EMBEDDING_MODEL_METHOD_NAME': (None, 'encode'),
  'GRADIENT_WRT_INPUT_TENSOR_NAMES': (None, [], list(config_lib.GRADIENTS)),
  'GRADIENT_WRT_MDL_VAR_TENSOR_NAMES': (None,),
}

# How upstream's server computes, not what: any value gives the same answers.
WITHOUT_EFFECT = frozenset(
  {
    'DECODE_MESH_TRANSPOSE',
    'FPROP_FOR_PREFIX',
    'SUPPORT_LAZY_PREFIX_BROADCAST',
    'USE_BATCH_SHARDING',
    'USE_MATMUL_BEAM_SHUFFLE',
    'XLA_TPU_FLAGS',
  }
)


def check(params: type[template.ServableLMParams]) -> None:
  """Refuses attributes that this server would not do as asked.

  Raises:
    errors.Unimplemented: an attribute has a value that is not followed.
  """
  for name, values in CHOICES.items():
    value = getattr(params, name)
    if not any(_same(value, each) for each in values):
      raise errors.Unimplemented(
        f'{params.__name__}.{name}={value!r} is not supported: publish with'
        f' {" or ".join(map(repr, values))}'
      )
  if params.FPROP_DTYPE != params.MODEL_DTYPE:
    raise errors.Unimplemented(
      f'{params.__name__}: FPROP_DTYPE={params.FPROP_DTYPE} with MODEL_DTYPE='
      f'{params.MODEL_DTYPE} is not supported: give both one type'
    )
  if params.GRADIENT_WRT_INPUT_TENSOR_NAMES and params.QUANTIZATION == 'int8':
    raise errors.Unimplemented(
      f'{params.__name__}: GRADIENT_WRT_INPUT_TENSOR_NAMES with'
      " QUANTIZATION='int8' is not supported, for rounded activations have no"
      " derivative: publish with QUANTIZATION='int8_weights' or 'none'"
    )
  if params.MIXED_SEARCH and params.BEAM_RULE != 'reference':
    raise errors.Unimplemented(
      f'{params.__name__}: MIXED_SEARCH with BEAM_RULE={params.BEAM_RULE!r} is'
      ' not supported: a request that may choose beams is answered by the'
      " reference's rule, whose settings it may choose too; publish with"
      " BEAM_RULE='reference' or without MIXED_SEARCH"
    )


def _same(value: Any, other: Any) -> bool:
  # 0 is not False: an attribute of another type has another meaning upstream.
  return value == other and isinstance(value, bool) == isinstance(other, bool)
