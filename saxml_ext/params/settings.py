"""Checked settings of serving params: what loader and services go by.

`Settings.of` reads a params class once, at load time, and refuses what this
server cannot do as asked, instead of doing something else.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import math
from typing import Any

from saxml_ext.common import errors
from saxml_ext.params import template

_DTYPES = ('float32', 'bfloat16')
# QUANTIZATION -> what the engine calls it.
_QUANTIZATIONS = {'none': None, 'int8': 'int8'}
_BEAM_RULES = ('reference', 'pax')

# The extra input with a request's own MAX_DECODE_STEPS.
MAX_STEPS_KEY = 'per_example_max_decode_steps'

# Attributes with one value that this server can follow, and that value.
_ONLY = {
    'STOP_TOKEN_IDS': None,
    'GENERATION_USE_GEOMEAN_PROB_SCORE': False,
    'SCORING_USE_GEOMEAN_PROB_SCORE': False,
    'SCORING_INCLUDE_EOS_SCORE': False,
    'PRECOMPUTE_KV_CACHE_PREFIX': None,
    'FETCH_PREFIX_LENGTHS_FROM_INPUTS': False,
    'NEXT_TOKEN_SAMPLER_TPL': None,
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
    num_beams: hypotheses per request; 1 is greedy.
    length_penalty: exponent of the length that divides a beam's score.
    early_stopping: whether a group ends with its num_beams-th hypothesis.
    beam_rule: 'reference', which goes by these two, or 'pax', which goes by
      the next three.
    length_norm_alpha: exponent of (length + 5) / 5 that divides a beam's score.
    tokens_per_beam: candidates of each beam; None: num_beams.
    early_exit: whether ended beams run on until all have ended.
    eos_id: end of an answer; None: the checkpoint's gptj_config.json
      knows it.
    sos_id: put before each prompt; None: nothing is.
    rotary_dim: rotated dimensions of a head; None as for eos_id.
    ln_epsilon: of the layer norms; None as for eos_id.
    dtype: of weights and KV cache, 'float32' or 'bfloat16'.
    quantization: 'int8' if matrices become int8 as they are loaded, and the
      activations that meet them int8 row by row; None: `dtype` throughout.
    tokenized_input: prompts are ids.
    tokenized_output: answers are ids.
    echo_prompt: answers start with the prompt.
    vocabulary_path: where the tokenizer is; None: beside the checkpoint.
    methods: data methods served, sorted.
    extra_inputs: method -> keys a request may set, with their defaults.
    shape: name of a size -> its value, those sizes the class fixes.
    mesh_size: devices the class was written for.
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
  num_beams: int
  length_penalty: float
  early_stopping: bool
  beam_rule: str
  length_norm_alpha: float
  tokens_per_beam: int | None
  early_exit: bool
  eos_id: int | None
  sos_id: int | None
  rotary_dim: int | None
  ln_epsilon: float | None
  dtype: str
  quantization: str | None
  tokenized_input: bool
  tokenized_output: bool
  echo_prompt: bool
  vocabulary_path: str | None
  methods: tuple[str, ...]
  extra_inputs: Mapping[str, Mapping[str, Any]]
  shape: Mapping[str, int]
  mesh_size: int

  @classmethod
  def of(cls, params: type[template.ServableLMParams]) -> 'Settings':
    """Reads and checks a params class.

    Raises:
      errors.Unimplemented: an attribute asks for what is not offered.
      errors.InvalidArgument: attributes are out of range or contradict.
    """
    _check_supported(params)
    num_beams = _num_beams(params)
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
        num_beams=num_beams,
        length_penalty=params.LENGTH_PENALTY,
        early_stopping=params.EARLY_STOPPING,
        # Greedy decoding is the reference's with one beam.
        beam_rule=params.BEAM_RULE if params.USE_BEAM_SEARCH else 'reference',
        length_norm_alpha=params.LENGTH_NORM_ALPHA,
        tokens_per_beam=params.TOKENS_PER_BEAM,
        early_exit=params.BEAM_SEARCH_EARLY_EXIT,
        eos_id=params.EOS_ID,
        sos_id=_sos_id(params),
        rotary_dim=params.ROTARY_DIM,
        ln_epsilon=params.LAYER_NORM_EPSILON,
        dtype=params.FPROP_DTYPE,
        quantization=_QUANTIZATIONS[params.QUANTIZATION],
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
        mesh_size=_product(params.ICI_MESH_SHAPE),
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
  if 'eos_id' in params.EXTRA_INPUTS:
    raise errors.Unimplemented(
        f'{params.__name__}: an eos_id per request (EXTRA_INPUTS) is not'
        ' supported: set EOS_ID for the model instead'
    )


def _num_beams(params: type[template.ServableLMParams]) -> int:
  if params.USE_BEAM_SEARCH:
    return params.BEAM_SIZE
  if params.NUM_SAMPLES == 1 and params.TOP_K == 1:
    return 1
  raise errors.Unimplemented(
      f'{params.__name__}: sampling (NUM_SAMPLES={params.NUM_SAMPLES}, TOP_K='
      f'{params.TOP_K}) is not supported: set USE_BEAM_SEARCH=true, or'
      ' NUM_SAMPLES=1 and TOP_K=1 for greedy decoding'
  )


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
      'BEAM_SIZE': (num_beams, 1),
      'TOKENS_PER_BEAM': (per_beam, 1),
  }
  for name, (value, bound) in least.items():
    if value < bound:
      raise errors.InvalidArgument(
          f'{params.__name__}.{name} is {value}, but must be at least {bound}'
      )
  for name in ('BATCH_WAIT_SECS', 'LENGTH_PENALTY', 'LENGTH_NORM_ALPHA'):
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


def _product(sizes: Sequence[int]) -> int:
  result = 1
  for size in sizes:
    result *= size
  return result


def _unimplemented(
    params: type, name: str, value: Any, supported: str
) -> errors.Unimplemented:
  return errors.Unimplemented(
      f'{params.__name__}.{name}={value!r} is not supported: {supported}'
  )
