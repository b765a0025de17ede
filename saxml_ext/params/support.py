"""Refuses serving params that this server does not support.

Each attribute of the template belongs to one of three groups. It is supported,
has only one supported value, or has no effect on answers. A test checks that
every attribute belongs to a group. Sizes must be valid for an engine.
"""

from collections.abc import Mapping
import math
from typing import Any

from saxml_ext.common import errors
from saxml_ext.common import request_options
from saxml_ext.engine import config as config_lib
from saxml_ext.families import all as families
from saxml_ext.families import hf_entries
from saxml_ext.params import template

# The engine's name of each value of QUANTIZATION.
QUANTIZATIONS = {
  'none': None,
  'int8': 'int8',
  'int8_weights': 'int8_weights',
  'int8_fine': 'int8_fine',
  'int4': 'int4',
  'fp8': 'fp8',
}

# Those that quantize activations too.
_ROUNDED_ACTIVATIONS = ('int8', 'int8_fine', 'int4', 'fp8')

# Attributes of stock Sax of which only the default is supported.
_FIXED = (
  'NUM_EXTRA_IDS REVERSE_EXTRA_IDS EMB_LOOKUP_STYLE EXTRA_INPUTS_DTYPES'
  ' NEXT_TOKEN_SAMPLER_TPL TOP_K_RECALL_TARGET USE_TOP_K_FOR_LOGPROBS'
  ' GLOBAL_NORMALIZE SORT_SAMPLES GENERATION_USE_GEOMEAN_PROB_SCORE'
  ' SCORING_USE_GEOMEAN_PROB_SCORE SCORING_INCLUDE_EOS_SCORE INCLUDE_EOS_SCORE'
  ' PRECOMPUTE_KV_CACHE_PREFIX FETCH_PREFIX_LENGTHS_FROM_INPUTS'
  ' POLYMORPHIC_SEQ_LEN_EXCLUSION TEXT_TO_EMBEDDING_SERVING_BATCH_SIZE'
  ' TEXT_TO_EMBEDDING_MAX_LIVE_BATCHES GRADIENT_WRT_MDL_VAR_TENSOR_NAMES'
).split()

# The supported values of each attribute.
CHOICES: Mapping[str, tuple[Any, ...]] = {
  'ARCHITECTURE': tuple(families.FAMILIES),
  'FPROP_DTYPE': config_lib.DTYPES,
  'MODEL_DTYPE': config_lib.DTYPES,
  'QUANTIZATION': tuple(QUANTIZATIONS),
  'KV_CACHE_DTYPE': (None, *config_lib.KV_DTYPES),
  'BEAM_RULE': ('reference', 'pax'),
  'VOCABULARY_CLASS': (None, 'GPT2BPEVocabulary', 'LLama3Vocabulary'),
  'TEXT_TO_EMBEDDING_OUTPUT_EMBEDDING_NAME': (None, *config_lib.EMBEDDINGS),
  'TEXT_TO_EMBEDDING_MODEL_METHOD_NAME': (None, 'encode'),
  'GRADIENT_WRT_INPUT_TENSOR_NAMES': (None, [], list(config_lib.GRADIENTS)),
  **{name: (getattr(template.ServableLMParams, name),) for name in _FIXED},
}

# The minimum of each attribute. None is also accepted: the checkpoint has the
# value, or it means 0.
_LEAST = {
  'BATCH_SIZE': 1,
  'MAX_LIVE_BATCHES': 1,
  'INPUT_SEQ_LEN': 1,
  'MAX_DECODE_STEPS': 1,
  'MIN_DECODE_STEPS': 0,
  'CONTEXT_LEN': 2,
  'SUFFIX_SEQ_LEN': 0,
  'BATCH_WAIT_SECS': 0,
  'BEAM_SIZE': 1,
  'NUM_SAMPLES': 1,
  'MAX_LOGPROBS': 0,
  'TOP_K': 0,
  'TEMPERATURE': 0,
  'PREFILL_CHUNK_LEN': 0,
  'PREFILL_INTERVAL_STEPS': 1,
  'TOKENS_PER_BEAM': 1,
  'STREAM_INTERVAL_STEPS': 1,
  'NUM_LAYERS': 1,
  'MODEL_DIMS': 1,
  'HIDDEN_DIMS': 1,
  'NUM_HEADS': 1,
  'NUM_KV_HEADS': 1,
  'DIMS_PER_HEAD': 1,
  'VOCAB_SIZE': 1,
}
_FINITE = (
  'BATCH_WAIT_SECS',
  'LENGTH_PENALTY',
  'LENGTH_NORM_ALPHA',
  'TEMPERATURE',
)
_CAPS = ('ATTEN_LOGIT_CAP', 'SOFTMAX_CAP_LOGITS')


def check(params: type[template.ServableLMParams]) -> None:
  """Refuses attributes that this server does not support.

  Raises:
    errors.Unimplemented: An attribute has a value that is not supported.
    errors.InvalidArgument: An attribute is out of range or contradicts another.
  """
  _check_choices(params)
  _check_numbers(params)
  _check_lengths(params)
  _check_lists(params)


def _check_choices(params: type[template.ServableLMParams]) -> None:
  for name, values in CHOICES.items():
    value = getattr(params, name)
    # 0 is not False: upstream treats an attribute of another type differently.
    if not hf_entries.is_one_of(value, values):
      raise errors.Unimplemented(
        f'{params.__name__}.{name}={value!r} is not supported. Publish with'
        f' {" or ".join(map(repr, values))}.'
      )
  if params.FPROP_DTYPE != params.MODEL_DTYPE:
    raise errors.Unimplemented(
      f'{params.__name__}: FPROP_DTYPE={params.FPROP_DTYPE} with'
      f' MODEL_DTYPE={params.MODEL_DTYPE} is not supported. Use the same type.'
    )
  if (
    params.GRADIENT_WRT_INPUT_TENSOR_NAMES
    and params.QUANTIZATION in _ROUNDED_ACTIVATIONS
  ):
    raise errors.Unimplemented(
      f'{params.__name__}: GRADIENT_WRT_INPUT_TENSOR_NAMES with'
      f' QUANTIZATION={params.QUANTIZATION!r} is not supported, because rounded'
      " activations have no derivative. Publish with QUANTIZATION='int8_weights'"
      " or 'none'."
    )
  if params.MIXED_SEARCH and params.BEAM_RULE != 'reference':
    raise errors.Unimplemented(
      f'{params.__name__}: MIXED_SEARCH with BEAM_RULE={params.BEAM_RULE!r} is'
      ' not supported, because requests that choose beams use the reference'
      " rule and its settings. Publish with BEAM_RULE='reference' or without"
      ' MIXED_SEARCH.'
    )


def _check_numbers(params: type[template.ServableLMParams]) -> None:
  values = {name: getattr(params, name) for name in (*_LEAST, *_FINITE, *_CAPS)}
  values['BATCH_SIZE'] = template.slots(params)
  values['MAX_DECODE_STEPS'] = template.largest(params.MAX_DECODE_STEPS)
  if not params.MIXED_SEARCH:
    del values['NUM_SAMPLES' if params.USE_BEAM_SEARCH else 'BEAM_SIZE']
  given = {name: value for name, value in values.items() if value is not None}
  for name, value in given.items():
    problem = ''
    if value < _LEAST.get(name, -math.inf):
      problem = f'at least {_LEAST[name]}'
    elif name in _FINITE and not math.isfinite(value):
      problem = 'finite'
    elif name in _CAPS and not 0 < value < math.inf:
      problem = 'finite and above 0, or None for no cap'
    if problem:
      raise errors.InvalidArgument(
        f'{params.__name__}.{name} is {value}, but must be {problem}'
      )


def _check_lengths(params: type[template.ServableLMParams]) -> None:
  max_new = template.largest(params.MAX_DECODE_STEPS)
  total = params.CONTEXT_LEN or params.INPUT_SEQ_LEN + max_new
  for name in ('MAX_SEQ_LEN', 'MAX_POSITION_EMBEDDINGS'):
    bound = getattr(params, name)
    if bound is not None and total > bound:
      raise errors.InvalidArgument(
        f'{params.__name__}: CONTEXT_LEN is {total}, above {name}={bound}. Lower'
        ' CONTEXT_LEN.'
        if params.CONTEXT_LEN
        else f'{params.__name__}: INPUT_SEQ_LEN={params.INPUT_SEQ_LEN} plus'
        f' MAX_DECODE_STEPS={max_new} is {total}, above {name}={bound}. Lower'
        ' INPUT_SEQ_LEN or MAX_DECODE_STEPS.'
      )


def _check_lists(params: type[template.ServableLMParams]) -> None:
  keys = sorted(set(params.BUCKET_KEYS or ()))
  longest = 'PREFILL_CHUNK_LEN' if params.CONTEXT_LEN else 'INPUT_SEQ_LEN'
  most = getattr(params, longest)
  if keys and (keys[0] < 1 or keys[-1] > most):
    raise errors.InvalidArgument(
      f'{params.__name__}.BUCKET_KEYS is {keys}, but must be between 1 and'
      f' {longest}={most}'
    )
  shape = list(params.ICI_MESH_SHAPE)
  if len(shape) != 3 or min(shape) < 1:
    raise errors.InvalidArgument(
      f'{params.__name__}.ICI_MESH_SHAPE is {shape}, but must be three sizes'
      ' of at least 1: [replica, data, model]'
    )
  if (form := params.QUANTIZATION) in ('int4', 'fp8') and max(shape) > 1:
    raise errors.Unimplemented(
      f'{params.__name__}: QUANTIZATION={form!r} with ICI_MESH_SHAPE={shape} is'
      f' not supported, because {form} matrices cannot be split among devices.'
      " Publish with QUANTIZATION='int8', or with ICI_MESH_SHAPE=[1, 1, 1]."
    )
  key = request_options.STOP_IDS_KEY
  default = params.EXTRA_INPUTS.get(key, ())
  if not isinstance(default, (list, tuple)):
    raise errors.InvalidArgument(
      f'{params.__name__}: the default of {key} in EXTRA_INPUTS is'
      f' {default!r}, but must be a list. Its length is the limit of a'
      " request's stop ids. Fill it with zeros in front."
    )
