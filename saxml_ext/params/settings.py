"""Checked settings of serving params, for the loader and the services.

`Settings.from_params` reads a params class once, at load time. It refuses
values that this server does not support, instead of replacing them.
"""

from collections.abc import Mapping
import dataclasses
import math
from typing import Any

from saxml_ext.common import errors
from saxml_ext.common import request_options
from saxml_ext.engine import architecture
from saxml_ext.engine import config as config_lib
from saxml_ext.families import all as families
from saxml_ext.families import family as family_lib
from saxml_ext.families import servable
from saxml_ext.params import overrides as overrides_lib
from saxml_ext.params import registry
from saxml_ext.params import support
from saxml_ext.params import template
from saxml_ext.pax import description

_Params = type[template.ServableLMParams]


def published(model_path: str, overrides: Mapping[str, str]) -> 'Settings':
  """Returns the settings of a model that is published with overrides.

  Args:
    model_path: The registered name of its serving params.
    overrides: The attributes of the params and their values as JSON.

  Raises:
    errors.InvalidArgument: The params or their overrides are not usable.
    errors.Unimplemented: An attribute has a value that is not supported.
  """
  return checked(
    model_path, overrides_lib.apply(registry.lookup(model_path), overrides)
  )


def checked(model_path: str, params: _Params) -> 'Settings':
  """Returns settings; an invalid form of an attribute raises InvalidArgument."""
  try:
    return Settings.from_params(params)
  except (TypeError, ValueError) as e:
    raise errors.InvalidArgument(f'{model_path}: {e}') from e


@dataclasses.dataclass(frozen=True)
class Settings:
  """The settings with which one model is served.

  Lengths are in tokens, and times are in seconds.

  Attributes:
    family: The family of the model.
    test_mode: True if random weights may be served.
    engine: The slots, lengths, search and types of the engine. If only the
      checkpoint's gptj_config.json has the eos_id, it is None until
      `completed`.
    admission_limit: The maximum number of pending requests per method.
    admission_wait: The time that a request may wait to share its prefill.
    fail_on_truncation: True if a longer prompt is an error.
    keep_left: True if a truncated prompt keeps its left end; False for the
      right end.
    max_suffix: The length of the longest suffix to score; 0 if prefix and
      suffix share engine.max_prompt.
    stop_ids: The tokens that end an answer; None if only engine.eos_id does.
    sos_id: The id before each prompt; None for no id.
    takes_start: True if sos_id is the tokenizer's, once it is loaded.
    rotary_dim: The number of rotated dimensions of a head.
    ln_epsilon: The epsilon of the layer norms. Like rotary_dim and
      engine.eos_id, it may be None until `completed`.
    rotary_base: The base of the wavelengths of rotary positions.
    rotary_scaling: The scaling of rotary positions; None for no scaling.
    dtype: The type of the weights, 'float32' or 'bfloat16'.
    quantization: The quantization at load time, as in `template`; None if all
      values have `dtype`.
    quantize_head: True if the head is also quantized.
    tokenized_input: True if prompts are ids.
    tokenized_output: True if answers are ids.
    echo_prompt: True if answers start with the prompt.
    vocabulary_path: The path of the tokenizer; None if it is beside the
      checkpoint.
    methods: The served data methods, sorted.
    stream_interval: The decode steps between two messages of a stream.
    compile_behind: True if the model serves before it has all programs.
    extra_inputs: The keys that a request may set, with their defaults, by
      method.
    shape: The sizes that the class sets, by name.
    mesh_shape: The device mesh for which the class was written, [replica, data,
      model].
    num_parameters: The values of the model; None if the checkpoint has no count.
    details: Further numbers of the model.
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
  takes_start: bool
  rotary_dim: int | None
  ln_epsilon: float | None
  rotary_base: float
  rotary_scaling: architecture.RotaryScaling | None
  dtype: str
  quantization: str | None
  quantize_head: bool
  tokenized_input: bool
  tokenized_output: bool
  echo_prompt: bool
  vocabulary_path: str | None
  methods: tuple[str, ...]
  stream_interval: int
  compile_behind: bool
  extra_inputs: Mapping[str, Mapping[str, Any]]
  shape: Mapping[str, int]
  mesh_shape: tuple[int, ...]
  num_parameters: int | None = None
  details: architecture.Details = architecture.Details()

  @classmethod
  def from_params(cls, params: _Params) -> 'Settings':
    """Reads and checks a params class.

    Raises:
      errors.Unimplemented: An attribute has a value that is not supported.
      errors.InvalidArgument: Attributes are out of range or contradictory.
      TypeError: An attribute has the wrong type.
      ValueError: An attribute has an unusable form.
    """
    support.check(params)
    engine = _engine(params)
    no_sos = params.EOS_PADDING_AND_NO_SOS or not params.PREPEND_SOS
    sizes = {n: getattr(params, name) for n, name in servable.SIZES.items()}
    # Prompts that are prefilled one at a time gain nothing by waiting for
    # others.
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
      # As in stock Sax, an empty list stands for None.
      stop_ids=tuple(params.STOP_TOKEN_IDS or ()) or None,
      sos_id=None if no_sos else params.SOS_ID,
      takes_start=not (no_sos or params.TOKENIZED_INPUT)
      and params.SOS_ID is None,
      rotary_dim=params.ROTARY_DIM,
      ln_epsilon=params.LAYER_NORM_EPSILON,
      rotary_base=params.ROTARY_BASE or config_lib.ModelConfig.rotary_base,
      rotary_scaling=_scaling(params),
      dtype=params.FPROP_DTYPE,
      quantization=support.QUANTIZATIONS[params.QUANTIZATION],
      quantize_head=params.QUANTIZE_SOFTMAX,
      tokenized_input=params.TOKENIZED_INPUT,
      tokenized_output=params.TOKENIZED_OUTPUT,
      echo_prompt=params.INCLUDE_PREFIX_IN_RESULT,
      vocabulary_path=params.VOCABULARY_PATH or params.SPM_MODEL,
      methods=_methods(params, engine),
      stream_interval=params.STREAM_INTERVAL_STEPS,
      compile_behind=params.COMPILE_BEHIND,
      extra_inputs=_extra_inputs(params),
      shape={name: n for name, n in sizes.items() if n is not None},
      mesh_shape=tuple(params.ICI_MESH_SHAPE),
    )

  def completed(self, stored: description.Description) -> 'Settings':
    """Returns settings completed with the values of the checkpoint.

    Args:
      stored: The checkpoint's description of its model. If the params set an
        end id, it replaces all end ids of the checkpoint.
    """
    engine, stop_ids = self.engine, self.stop_ids
    if stored.stop_ids and stop_ids is None and engine.eos_id is None:
      stop_ids = tuple(stored.stop_ids)
      room = max(engine.max_stop_ids, len(stop_ids))
      engine = dataclasses.replace(engine, max_stop_ids=room)
    return dataclasses.replace(
      self,
      engine=_set_eos_id(engine, _first(engine.eos_id, stored.eos_id)),
      stop_ids=stop_ids,
      rotary_dim=_first(self.rotary_dim, stored.rotary_dim),
      ln_epsilon=_first(self.ln_epsilon, stored.ln_epsilon),
      rotary_base=_first(stored.rotary_base, self.rotary_base),
      rotary_scaling=_first(stored.rotary_scaling, self.rotary_scaling),
      details=_first(stored.details, self.details),
      num_parameters=_first(stored.num_parameters, self.num_parameters),
    )

  @property
  def end_ids(self) -> tuple[int, ...]:
    """The ids that end an answer, unless its request has its own."""
    if self.stop_ids is not None:
      return self.stop_ids
    return () if self.engine.eos_id is None else (self.engine.eos_id,)

  @property
  def needs_tokenizer(self) -> bool:
    """True if the text of requests or answers consists of words, not ids."""
    return not (self.tokenized_input and self.tokenized_output)

  def model_config(self) -> config_lib.ModelConfig:
    """Returns the sizes of a model that has no checkpoint.

    Without NUM_HEADS, the number of heads is model_dim // head_dim, as in Pax.

    Raises:
      ValueError: The params do not set a size, or the sizes do not make a
        model.
    """
    names = 'rotary_dim ln_epsilon rotary_base rotary_scaling details'.split()
    known: dict[str, Any] = {name: getattr(self, name) for name in names}
    known |= self.shape
    if 'model_dim' in known and 'head_dim' in known:
      known.setdefault('num_heads', known['model_dim'] // known['head_dim'])
    # Without NUM_KV_HEADS, each head has its own keys and values.
    kv_heads = known.pop('kv_heads', 0)
    more = {'rotary_dim': 'ROTARY_DIM', 'ln_epsilon': 'LAYER_NORM_EPSILON'}
    attributes = servable.SIZES | more
    del attributes['kv_heads']
    missing = [a for name, a in attributes.items() if known.get(name) is None]
    if missing:
      raise ValueError(
        f'the params take {" and ".join(missing)} from the checkpoint, but'
        f' there is none. Override each, such as {missing[0]}=<number>.'
      )
    return config_lib.ModelConfig(
      **known,
      num_kv_heads=kv_heads,
      ln_direct_scale=self.family.ln_direct_scale,
      architecture=self.family.architecture,
    )


def _engine(params: _Params) -> config_lib.EngineConfig:
  """Returns the configuration of batches, search and stops of the engine.

  Its eos_id is None if the params leave EOS_ID to the checkpoint.

  Args:
    params: A class that `support.check` accepts.
  """
  mixed = params.MIXED_SEARCH
  search = 'any' if mixed else 'sample'
  if params.USE_BEAM_SEARCH and not mixed:
    search = 'pax' if params.BEAM_RULE == 'pax' else 'beam'
  max_new = template.largest(params.MAX_DECODE_STEPS)
  embedding = params.TEXT_TO_EMBEDDING_OUTPUT_EMBEDDING_NAME
  # Stock Sax serves embeddings if both attributes are set and scores are
  # served.
  if params.GENERATE_ONLY or params.TEXT_TO_EMBEDDING_MODEL_METHOD_NAME is None:
    embedding = None
  accepted = params.EXTRA_INPUTS.get(request_options.STOP_IDS_KEY, ())
  context = params.CONTEXT_LEN or 0
  # Every accepted prompt needs a bucket.
  longest = params.PREFILL_CHUNK_LEN if context else params.INPUT_SEQ_LEN
  config = config_lib.EngineConfig(
    eos_id=None,
    num_slots=template.slots(params),
    max_context=context,
    max_prompt=params.INPUT_SEQ_LEN,
    prompt_buckets=tuple(sorted({*(params.BUCKET_KEYS or ()), longest})),
    prefill_chunk=params.PREFILL_CHUNK_LEN,
    prefill_interval=params.PREFILL_INTERVAL_STEPS,
    max_new_tokens=max_new,
    min_new_tokens=min(params.MIN_DECODE_STEPS, max_new),
    max_stop_ids=max(len(params.STOP_TOKEN_IDS or ()), len(accepted), 1),
    search=search,
    num_beams=params.NUM_SAMPLES if search == 'sample' else params.BEAM_SIZE,
    num_samples=params.NUM_SAMPLES if mixed else None,
    beam_search=params.USE_BEAM_SEARCH or not mixed,
    max_logprobs=params.MAX_LOGPROBS,
    embedding=embedding,
    gradients=tuple(params.GRADIENT_WRT_INPUT_TENSOR_NAMES or ()),
    length_penalty=params.LENGTH_PENALTY,
    early_stopping=params.EARLY_STOPPING,
    length_norm_alpha=params.LENGTH_NORM_ALPHA,
    tokens_per_beam=params.TOKENS_PER_BEAM,
    early_exit=params.BEAM_SEARCH_EARLY_EXIT,
    max_top_k=params.TOP_K,
    temperature=params.TEMPERATURE,
    kv_dtype=params.KV_CACHE_DTYPE or params.FPROP_DTYPE,
    suffix_block=max_new if context else config_lib.suffix_block(max_new),
  )
  return _set_eos_id(
    config, _first(params.EOS_ID, *(params.STOP_TOKEN_IDS or ()))
  )


def _set_eos_id(
  config: config_lib.EngineConfig, eos_id: int | None
) -> config_lib.EngineConfig:
  """Returns a copy with the id that ends answers and pads prompts."""
  pad_id = config.pad_id if eos_id is None else eos_id
  return dataclasses.replace(config, eos_id=eos_id, pad_id=pad_id)


def _scaling(params: _Params) -> architecture.RotaryScaling | None:
  values = params.ROTARY_SCALING
  try:
    if values is None:
      return None
    factor, low, high, length = values
    return architecture.RotaryScaling(factor, low, high, int(length))
  except (TypeError, ValueError) as e:
    raise errors.InvalidArgument(
      f'{params.__name__}.ROTARY_SCALING is {values}, but must be [factor,'
      f' low_freq_factor, high_freq_factor, original length] or null: {e}'
    ) from e


def _family(params: _Params) -> family_lib.Family:
  """Returns the family of the params, with the caps of the params."""
  family = families.FAMILIES[params.ARCHITECTURE]
  architecture = dataclasses.replace(
    family.architecture,
    attention_cap=params.ATTEN_LOGIT_CAP,
    logit_cap=params.SOFTMAX_CAP_LOGITS,
  )
  return dataclasses.replace(family, architecture=architecture)


def _methods(
  params: _Params, engine: config_lib.EngineConfig
) -> tuple[str, ...]:
  generates = not params.SCORE_ONLY
  served = {
    'lm.embed': engine.embedding is not None,
    'lm.generate': params.ENABLE_GENERATE and generates,
    'lm.generate_stream': params.ENABLE_GENERATE_STREAM and generates,
    'lm.gradient': bool(engine.gradients),
    'lm.score': not params.GENERATE_ONLY,
  }
  if not any(served.values()):
    raise errors.InvalidArgument(
      f'{params.__name__} serves no method. Change SCORE_ONLY, GENERATE_ONLY,'
      ' ENABLE_GENERATE or ENABLE_GENERATE_STREAM.'
    )
  return tuple(method for method, is_served in served.items() if is_served)


def _extra_inputs(params: _Params) -> dict[str, Mapping[str, Any]]:
  """Returns the keys that a request may set and their defaults, by method."""
  generate = dict(params.EXTRA_INPUTS)
  key = request_options.MAX_STEPS_KEY
  if params.CONTEXT_LEN:
    generate[key] = None  # As much as the prompt leaves.
  elif key in generate:
    # An override may lower only MAX_DECODE_STEPS.
    limit = template.largest(params.MAX_DECODE_STEPS)
    generate[key] = min(generate[key], limit)
  key = request_options.BY_ENGINE['top_k'].extra_input
  if key in generate:  # Likewise, an override may set only TOP_K.
    generate[key] = min(generate[key] or params.TOP_K, params.TOP_K)
  score = dict(params.SCORE_EXTRA_INPUTS)
  return {
    **dict.fromkeys(('lm.generate', 'lm.generate_stream'), generate),
    **dict.fromkeys(('lm.score', 'lm.gradient'), score),
    'lm.embed': {},
  }


def _first(*values):
  return next((value for value in values if value is not None), None)
