"""Checked settings of serving params: what loader and services go by.

`Settings.of` reads a params class once, at load time, and refuses what this
server cannot do as asked, instead of doing something else.
"""

from collections.abc import Mapping
import dataclasses
import math
from typing import Any

from saxml_ext.common import errors
from saxml_ext.params import template

_DTYPES = ('float32', 'bfloat16')
# QUANTIZATION -> what the engine calls it.
_QUANTIZATIONS = {
    'none': None,
    'int8': 'int8',
    'int8_weights': 'int8_weights',
}
_KV_DTYPES = (None, *_DTYPES, 'int8')
_BEAM_RULES = ('reference', 'pax')

# The extra input with a request's own MAX_DECODE_STEPS.
MAX_STEPS_KEY = 'per_example_max_decode_steps'
# The one with a request's own stop ids: a list of fixed length, filled up with
# 0 in front.
STOP_IDS_KEY = 'eos_id'

# Attributes with one value that this server can follow, and that value.
_ONLY = {
    'GENERATION_USE_GEOMEAN_PROB_SCORE': False,
    'SCORING_USE_GEOMEAN_PROB_SCORE': False,
    'SCORING_INCLUDE_EOS_SCORE': False,
    'PRECOMPUTE_KV_CACHE_PREFIX': None,
    'FETCH_PREFIX_LENGTHS_FROM_INPUTS': False,
    'NEXT_TOKEN_SAMPLER_TPL': None,
    'SORT_SAMPLES': True,
    'GLOBAL_NORMALIZE': False,
    'USE_TOP_K_FOR_LOGPROBS': False,
    'TEXT_TO_EMBEDDING_OUTPUT_EMBEDDING_NAME': None,
    'TEXT_TO_EMBEDDING_MODEL_METHOD_NAME': None,
    'GRADIENT_WRT_INPUT_TENSOR_NAMES': None,
    'GRADIENT_WRT_MDL_VAR_TENSOR_NAMES': None,
    'SPM_MODEL': None,
}


@dataclasses.dataclass(frozen=True)
class Settings:
  """How one model is served. Lengths are in tokens, times in seconds.

  Attributes:
    num_slots: beam groups decoded together.
    admission_limit: requests per method held before more are refused.
    admission_wait: how long a request may wait to share its prefill.
    max_prompt: longest prompt.
    prompt_buckets: padded prompt lengths, ascending; the last is max_prompt.
    fail_on_truncation: whether a longer prompt is an error.
    keep_left: which end of a prompt that is cut stays.
    max_suffix: longest suffix to score; 0 if it shares max_prompt.
    min_new_tokens: before it no answer ends.
    max_new_tokens: at it every answer ends.
    search: 'beam', the reference's beam search, 'pax', Pax's, or 'sample'.
    num_beams: beams or samples per request.
    max_top_k: samples come from this many tokens at most, 1 being greedy; 0:
      from the whole vocabulary.
    temperature: of samples whose request does not say.
    length_penalty: exponent of the length that divides a beam's score.
    early_stopping: whether a group ends with its num_beams-th hypothesis.
    length_norm_alpha: exponent of (length + 5) / 5 that divides a beam's score;
      this one and the next two are Pax's.
    tokens_per_beam: candidates of each beam; None: num_beams.
    early_exit: whether ended beams run on until all have ended.
    eos_id: end of an answer; None: the checkpoint's gptj_config.json
      knows it.
    stop_ids: tokens that end an answer; None: eos_id alone.
    max_stop_ids: most stop ids of a request.
    sos_id: put before each prompt; None: nothing is.
    rotary_dim: rotated dimensions of a head; None as for eos_id.
    ln_epsilon: of the layer norms; None as for eos_id.
    dtype: of weights, 'float32' or 'bfloat16'.
    quantization: 'int8' if matrices become int8 as they are loaded, and the
      activations that meet them int8 row by row; 'int8_weights' if the
      matrices alone do; None: `dtype` throughout.
    quantize_head: whether the head is among these matrices.
    kv_dtype: of keys and values, 'float32', 'bfloat16' or 'int8'.
    prefill_chunk: longer prompts are prefilled in parts of this many tokens; 0:
      in one go.
    tokenized_input: prompts are ids.
    tokenized_output: answers are ids.
    echo_prompt: answers start with the prompt.
    vocabulary_path: where the tokenizer is; None: beside the checkpoint.
    methods: data methods served, sorted.
    extra_inputs: method -> keys a request may set, with their defaults.
    shape: name of a size -> its value, those sizes the class fixes.
    mesh_shape: devices the class was written for, [replica, data, model].
  """

  num_slots: int
  admission_limit: int
  admission_wait: float
  max_prompt: int
  prompt_buckets: tuple[int, ...]
  fail_on_truncation: bool
  keep_left: bool
  max_suffix: int
  min_new_tokens: int
  max_new_tokens: int
  search: str
  num_beams: int
  max_top_k: int
  temperature: float
  length_penalty: float
  early_stopping: bool
  length_norm_alpha: float
  tokens_per_beam: int | None
  early_exit: bool
  eos_id: int | None
  stop_ids: tuple[int, ...] | None
  max_stop_ids: int
  sos_id: int | None
  rotary_dim: int | None
  ln_epsilon: float | None
  dtype: str
  quantization: str | None
  quantize_head: bool
  kv_dtype: str
  prefill_chunk: int
  tokenized_input: bool
  tokenized_output: bool
  echo_prompt: bool
  vocabulary_path: str | None
  methods: tuple[str, ...]
  extra_inputs: Mapping[str, Mapping[str, Any]]
  shape: Mapping[str, int]
  mesh_shape: tuple[int, ...]

  @classmethod
  def of(cls, params: type[template.ServableLMParams]) -> 'Settings':
    """Reads and checks a params class.

    Raises:
      errors.Unimplemented: an attribute asks for what is not offered.
      errors.InvalidArgument: attributes are out of range or contradict.
    """
    _check_supported(params)
    num_beams = (
        params.BEAM_SIZE if params.USE_BEAM_SEARCH else params.NUM_SAMPLES
    )
    max_new = template.largest(params.MAX_DECODE_STEPS)
    _check_ranges(params, max_new, num_beams)
    methods = _methods(params)
    return cls(
        num_slots=template.slots(params),
        admission_limit=template.admission_limit(params),
        admission_wait=params.BATCH_WAIT_SECS or 0.0,
        max_prompt=params.INPUT_SEQ_LEN,
        prompt_buckets=_buckets(params),
        fail_on_truncation=params.FAIL_ON_INPUT_TRUNCATION,
        keep_left=params.SLICE_LEFT,
        max_suffix=params.SUFFIX_SEQ_LEN,
        min_new_tokens=min(params.MIN_DECODE_STEPS, max_new),
        max_new_tokens=max_new,
        search=_search(params),
        num_beams=num_beams,
        max_top_k=params.TOP_K,
        temperature=params.TEMPERATURE,
        length_penalty=params.LENGTH_PENALTY,
        early_stopping=params.EARLY_STOPPING,
        length_norm_alpha=params.LENGTH_NORM_ALPHA,
        tokens_per_beam=params.TOKENS_PER_BEAM,
        early_exit=params.BEAM_SEARCH_EARLY_EXIT,
        eos_id=params.EOS_ID,
        stop_ids=_stop_ids(params),
        max_stop_ids=max(
            len(params.STOP_TOKEN_IDS or ()),
            len(params.EXTRA_INPUTS.get(STOP_IDS_KEY, ())),
            1,
        ),
        sos_id=_sos_id(params),
        rotary_dim=params.ROTARY_DIM,
        ln_epsilon=params.LAYER_NORM_EPSILON,
        dtype=params.FPROP_DTYPE,
        quantization=_QUANTIZATIONS[params.QUANTIZATION],
        quantize_head=params.QUANTIZE_SOFTMAX,
        kv_dtype=params.KV_CACHE_DTYPE or params.FPROP_DTYPE,
        prefill_chunk=params.PREFILL_CHUNK_LEN,
        tokenized_input=params.TOKENIZED_INPUT,
        tokenized_output=params.TOKENIZED_OUTPUT,
        echo_prompt=params.INCLUDE_PREFIX_IN_RESULT,
        vocabulary_path=params.VOCABULARY_PATH,
        methods=methods,
        extra_inputs={
            'lm.generate': _extra_inputs(params, max_new),
            'lm.score': dict(params.SCORE_EXTRA_INPUTS),
        },
        shape=_shape(params),
        mesh_shape=_mesh_shape(params),
    )

  @property
  def needs_tokenizer(self) -> bool:
    """Whether some text of a request or an answer is words, not ids."""
    return not (self.tokenized_input and self.tokenized_output)


def _check_supported(params: type[template.ServableLMParams]) -> None:
  for name, only in _ONLY.items():
    value = getattr(params, name)
    if value != only:
      raise _unimplemented(params, name, value, f'{only!r} is')
  if params.FPROP_DTYPE != params.MODEL_DTYPE:
    raise errors.Unimplemented(
        f'{params.__name__}: FPROP_DTYPE={params.FPROP_DTYPE} with MODEL_DTYPE='
        f'{params.MODEL_DTYPE} is not supported: give both one type'
    )
  if params.FPROP_DTYPE not in _DTYPES:
    supported = ' and '.join(_DTYPES) + ' are'
    raise _unimplemented(params, 'FPROP_DTYPE', params.FPROP_DTYPE, supported)
  if params.QUANTIZATION not in _QUANTIZATIONS:
    supported = ' and '.join(map(repr, _QUANTIZATIONS)) + ' are'
    raise _unimplemented(params, 'QUANTIZATION', params.QUANTIZATION, supported)
  if params.BEAM_RULE not in _BEAM_RULES:
    supported = ' and '.join(map(repr, _BEAM_RULES)) + ' are'
    raise _unimplemented(params, 'BEAM_RULE', params.BEAM_RULE, supported)
  if params.ENABLE_GENERATE_STREAM:
    raise _unimplemented(params, 'ENABLE_GENERATE_STREAM', True, 'False is')
  if params.KV_CACHE_DTYPE not in _KV_DTYPES:
    supported = ', '.join(map(repr, _KV_DTYPES)) + ' are'
    raise _unimplemented(
        params, 'KV_CACHE_DTYPE', params.KV_CACHE_DTYPE, supported
    )
  default = params.EXTRA_INPUTS.get(STOP_IDS_KEY, ())
  if not isinstance(default, (list, tuple)):
    raise errors.InvalidArgument(
        f'{params.__name__}: the default of {STOP_IDS_KEY} in EXTRA_INPUTS is'
        f' {default!r}, but must be a list, as long as a request may have stop'
        ' ids and filled up with 0 in front'
    )


def _search(params: type[template.ServableLMParams]) -> str:
  if not params.USE_BEAM_SEARCH:
    return 'sample'
  return 'pax' if params.BEAM_RULE == 'pax' else 'beam'


def _stop_ids(
    params: type[template.ServableLMParams],
) -> tuple[int, ...] | None:
  if params.STOP_TOKEN_IDS is None:
    return None
  return tuple(params.STOP_TOKEN_IDS)


def _check_ranges(
    params: type[template.ServableLMParams], max_new: int, num_beams: int
) -> None:
  """Refuses sizes that no engine could be built with."""
  per_beam = 1 if params.TOKENS_PER_BEAM is None else params.TOKENS_PER_BEAM
  least = {
      'BATCH_SIZE': (template.slots(params), 1),
      'MAX_LIVE_BATCHES': (params.MAX_LIVE_BATCHES, 1),
      'INPUT_SEQ_LEN': (params.INPUT_SEQ_LEN, 1),
      'MAX_DECODE_STEPS': (max_new, 1),
      'MIN_DECODE_STEPS': (params.MIN_DECODE_STEPS, 0),
      'SUFFIX_SEQ_LEN': (params.SUFFIX_SEQ_LEN, 0),
      'BATCH_WAIT_SECS': (params.BATCH_WAIT_SECS or 0, 0),
      'BEAM_SIZE' if params.USE_BEAM_SEARCH else 'NUM_SAMPLES': (num_beams, 1),
      'TOP_K': (params.TOP_K, 0),
      'TEMPERATURE': (params.TEMPERATURE, 0),
      'PREFILL_CHUNK_LEN': (params.PREFILL_CHUNK_LEN, 0),
      'TOKENS_PER_BEAM': (per_beam, 1),
  }
  for name, (value, bound) in least.items():
    if value < bound:
      raise errors.InvalidArgument(
          f'{params.__name__}.{name} is {value}, but must be at least {bound}'
      )
  for name in (
      'BATCH_WAIT_SECS',
      'LENGTH_PENALTY',
      'LENGTH_NORM_ALPHA',
      'TEMPERATURE',
  ):
    value = getattr(params, name)
    if value is not None and not math.isfinite(value):
      raise errors.InvalidArgument(
          f'{params.__name__}.{name} is {value}, but must be finite'
      )
  total = params.INPUT_SEQ_LEN + max_new
  for name in ('MAX_SEQ_LEN', 'MAX_POSITION_EMBEDDINGS'):
    bound = getattr(params, name)
    if bound is not None and total > bound:
      raise errors.InvalidArgument(
          f'{params.__name__}: INPUT_SEQ_LEN={params.INPUT_SEQ_LEN} plus'
          f' MAX_DECODE_STEPS={max_new} is {total}, above {name}={bound}:'
          ' lower one of the former'
      )


def _buckets(params: type[template.ServableLMParams]) -> tuple[int, ...]:
  keys = sorted(set(params.BUCKET_KEYS or ()))
  if keys and (keys[0] < 1 or keys[-1] > params.INPUT_SEQ_LEN):
    raise errors.InvalidArgument(
        f'{params.__name__}.BUCKET_KEYS={keys} must lie between 1 and'
        f' INPUT_SEQ_LEN={params.INPUT_SEQ_LEN}'
    )
  # Every prompt that is accepted needs a bucket.
  if not keys or keys[-1] < params.INPUT_SEQ_LEN:
    keys.append(params.INPUT_SEQ_LEN)
  return tuple(keys)


def _methods(params: type[template.ServableLMParams]) -> tuple[str, ...]:
  methods = []
  if params.ENABLE_GENERATE and not params.SCORE_ONLY:
    methods.append('lm.generate')
  if not params.GENERATE_ONLY:
    methods.append('lm.score')
  if not methods:
    raise errors.InvalidArgument(
        f'{params.__name__} serves no method: SCORE_ONLY, GENERATE_ONLY and'
        ' ENABLE_GENERATE leave none'
    )
  return tuple(methods)


def _sos_id(params: type[template.ServableLMParams]) -> int | None:
  if params.EOS_PADDING_AND_NO_SOS or not params.PREPEND_SOS:
    return None
  return params.SOS_ID


def _extra_inputs(
    params: type[template.ServableLMParams], max_new: int
) -> dict[str, Any]:
  defaults = dict(params.EXTRA_INPUTS)
  if MAX_STEPS_KEY in defaults:
    # An override may lower MAX_DECODE_STEPS alone.
    defaults[MAX_STEPS_KEY] = min(defaults[MAX_STEPS_KEY], max_new)
  return defaults


def _shape(params: type[template.ServableLMParams]) -> dict[str, int]:
  fixed = {
      'num_layers': params.NUM_LAYERS,
      'model_dim': params.MODEL_DIMS,
      'hidden_dim': params.HIDDEN_DIMS,
      'num_heads': params.NUM_HEADS,
      'head_dim': params.DIMS_PER_HEAD,
      'vocab_size': params.VOCAB_SIZE,
  }
  return {name: size for name, size in fixed.items() if size is not None}


def _mesh_shape(params: type[template.ServableLMParams]) -> tuple[int, ...]:
  shape = tuple(params.ICI_MESH_SHAPE)
  if len(shape) != 3 or min(shape) < 1:
    raise errors.InvalidArgument(
        f'{params.__name__}.ICI_MESH_SHAPE is {list(shape)}, but must be three'
        ' sizes of at least 1: [replica, data, model]'
    )
  return shape


def _unimplemented(
    params: type, name: str, value: Any, supported: str
) -> errors.Unimplemented:
  return errors.Unimplemented(
      f'{params.__name__}.{name}={value!r} is not supported: {supported}'
  )
