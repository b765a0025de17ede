"""Checked settings of serving params: what loader and services go by.

`Settings.of` reads a params class once, at load time, and refuses what this
server cannot do as asked, instead of doing something else.
"""

from collections.abc import Mapping
import dataclasses
import math
from typing import Any

from saxml_ext.common import errors
from saxml_ext.engine import config as config_lib
from saxml_ext.families import all as families
from saxml_ext.families import family as family_lib
from saxml_ext.params import engine_config
from saxml_ext.params import ranges
from saxml_ext.params import request_inputs
from saxml_ext.params import support
from saxml_ext.params import template
from saxml_ext.pax import description

# Size of a model -> the attribute that has it.
SIZES = {
  'num_layers': 'NUM_LAYERS',
  'model_dim': 'MODEL_DIMS',
  'hidden_dim': 'HIDDEN_DIMS',
  'num_heads': 'NUM_HEADS',
  'head_dim': 'DIMS_PER_HEAD',
  'vocab_size': 'VOCAB_SIZE',
}


@dataclasses.dataclass(frozen=True)
class Settings:
  """How one model is served. Lengths are in tokens, times in seconds.

  Attributes:
    family: what kind of model it is.
    test_mode: whether random weights may be served.
    engine: slots, lengths, search and types of the engine; its eos_id is None
      until `completed` where the checkpoint's gptj_config.json knows it.
    admission_limit: requests per method held before more are refused.
    admission_wait: how long a request may wait to share its prefill; 0 if each
      prompt is prefilled alone.
    fail_on_truncation: whether a longer prompt is an error.
    keep_left: which end of a prompt that is cut stays.
    max_suffix: longest suffix to score; 0 if it shares engine.max_prompt.
    stop_ids: tokens that end an answer; None: engine.eos_id alone.
    sos_id: put before each prompt; None: nothing is.
    rotary_dim: rotated dimensions of a head; None as for engine.eos_id.
    ln_epsilon: of the layer norms; None as for engine.eos_id.
    rotary_base: The base of the wavelengths of rotary positions.
    dtype: of weights, 'float32' or 'bfloat16'.
    quantization: 'int8' if matrices become int8 as they are loaded, and the
      activations that meet them int8 row by row; 'int8_weights' if the
      matrices alone do; None: `dtype` throughout.
    quantize_head: whether the head is among these matrices.
    tokenized_input: prompts are ids.
    tokenized_output: answers are ids.
    echo_prompt: answers start with the prompt.
    vocabulary_path: where the tokenizer is; None: beside the checkpoint.
    methods: data methods served, sorted.
    stream_interval: decode steps between two messages of a stream.
    extra_inputs: method -> keys a request may set, with their defaults.
    shape: name of a size -> its value, those sizes the class fixes.
    mesh_shape: devices the class was written for, [replica, data, model].
  """

  family: family_lib.Family
  test_mode: bool
  engine: config_lib.EngineConfig
  admission_limit: int
  admission_wait: float
  fail_on_truncation: bool
  keep_left: bool
  max_suffix: int
  stop_ids: tuple[int, ...] | None
  sos_id: int | None
  rotary_dim: int | None
  ln_epsilon: float | None
  rotary_base: float
  dtype: str
  quantization: str | None
  quantize_head: bool
  tokenized_input: bool
  tokenized_output: bool
  echo_prompt: bool
  vocabulary_path: str | None
  methods: tuple[str, ...]
  stream_interval: int
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
    support.check(params)
    ranges.check(params)
    engine = engine_config.of(params)
    # Prompts that are prefilled one at a time gain nothing from company.
    parts = math.prod(params.ICI_MESH_SHAPE[:-1])
    shares = engine.prefill_batches != (1,) or parts > 1
    return cls(
      family=_family(params),
      test_mode=params.test_mode,
      engine=engine,
      admission_limit=template.admission_limit(params),
      admission_wait=(params.BATCH_WAIT_SECS or 0.0) if shares else 0.0,
      fail_on_truncation=params.FAIL_ON_INPUT_TRUNCATION,
      keep_left=params.SLICE_LEFT,
      max_suffix=params.SUFFIX_SEQ_LEN,
      stop_ids=_stop_ids(params),
      sos_id=_sos_id(params),
      rotary_dim=params.ROTARY_DIM,
      ln_epsilon=params.LAYER_NORM_EPSILON,
      rotary_base=config_lib.ModelConfig.rotary_base,
      dtype=params.FPROP_DTYPE,
      quantization=support.QUANTIZATIONS[params.QUANTIZATION],
      quantize_head=params.QUANTIZE_SOFTMAX,
      tokenized_input=params.TOKENIZED_INPUT,
      tokenized_output=params.TOKENIZED_OUTPUT,
      echo_prompt=params.INCLUDE_PREFIX_IN_RESULT,
      vocabulary_path=params.VOCABULARY_PATH or params.SPM_MODEL,
      methods=_methods(params),
      stream_interval=params.STREAM_INTERVAL_STEPS,
      extra_inputs=request_inputs.defaults(params),
      shape=_shape(params),
      mesh_shape=tuple(params.ICI_MESH_SHAPE),
    )

  def completed(self, said: description.Description) -> 'Settings':
    """Returns settings with what the params leave to the checkpoint filled in.

    Args:
      said: What the checkpoint says of its model. An end id of the params stands
        for all of the checkpoint's.
    """
    engine, stop_ids = self.engine, self.stop_ids
    if said.stop_ids and stop_ids is None and engine.eos_id is None:
      stop_ids = tuple(said.stop_ids)
      room = max(engine.max_stop_ids, len(stop_ids))
      engine = dataclasses.replace(engine, max_stop_ids=room)
    return dataclasses.replace(
      self,
      engine=engine_config.with_eos_id(
        engine, _first(engine.eos_id, said.eos_id)
      ),
      stop_ids=stop_ids,
      rotary_dim=_first(self.rotary_dim, said.rotary_dim),
      ln_epsilon=_first(self.ln_epsilon, said.ln_epsilon),
      rotary_base=_first(said.rotary_base, self.rotary_base),
    )

  @property
  def needs_tokenizer(self) -> bool:
    """Whether some text of a request or an answer is words, not ids."""
    return not (self.tokenized_input and self.tokenized_output)


def _family(params: type[template.ServableLMParams]) -> family_lib.Family:
  """Returns the family that params name, with their own caps."""
  family = families.FAMILIES[params.ARCHITECTURE]
  architecture = dataclasses.replace(
    family.architecture,
    attention_cap=params.ATTEN_LOGIT_CAP,
    logit_cap=params.SOFTMAX_CAP_LOGITS,
  )
  return dataclasses.replace(family, architecture=architecture)


def _methods(params: type[template.ServableLMParams]) -> tuple[str, ...]:
  methods = []
  if params.ENABLE_GENERATE and not params.SCORE_ONLY:
    methods.append('lm.generate')
  if params.ENABLE_GENERATE_STREAM and not params.SCORE_ONLY:
    methods.append('lm.generate_stream')
  if not params.GENERATE_ONLY:
    methods.append('lm.score')
  engine = engine_config.of(params)
  if engine.embedding is not None:
    methods.append('lm.embed')
  if engine.gradients:
    methods.append('lm.gradient')
  if not methods:
    raise errors.InvalidArgument(
      f'{params.__name__} serves no method: SCORE_ONLY, GENERATE_ONLY,'
      ' ENABLE_GENERATE and ENABLE_GENERATE_STREAM leave none'
    )
  return tuple(sorted(methods))


def _stop_ids(
  params: type[template.ServableLMParams],
) -> tuple[int, ...] | None:
  if params.STOP_TOKEN_IDS is None:
    return None
  return tuple(params.STOP_TOKEN_IDS)


def _sos_id(params: type[template.ServableLMParams]) -> int | None:
  if params.EOS_PADDING_AND_NO_SOS or not params.PREPEND_SOS:
    return None
  return params.SOS_ID


def _shape(params: type[template.ServableLMParams]) -> dict[str, int]:
  fixed = {name: getattr(params, SIZES[name]) for name in SIZES}
  return {name: size for name, size in fixed.items() if size is not None}


def _first(*values):
  return next((value for value in values if value is not None), None)
