"""The attributes of serving params for language models, with their defaults.

Names, defaults and meanings are those of Sax. The section "Own attributes" has
the attributes that this server adds. A params class derives from
`ServableLMParams` and sets the values that differ. A publish may override
single attributes (`saxml_ext.params.overrides`). `saxml_ext.params.settings`
converts a class to checked settings and refuses values that the engine does not
support.
"""

from collections.abc import Mapping, Sequence
from typing import Any


class ServableLMParams:
  """Serving attributes of a language model."""

  # True if the checkpoint `None` is served with random weights. The name is
  # Sax's, and a publish cannot override it.
  test_mode: bool = False

  # --- Shape of the model. ---
  # A size is checked against the checkpoint; None takes the checkpoint's size.
  NUM_LAYERS: int | None = None
  MODEL_DIMS: int | None = None
  HIDDEN_DIMS: int | None = None
  NUM_HEADS: int | None = None
  # The heads of keys and values, each shared by equally many queries.
  NUM_KV_HEADS: int | None = None
  DIMS_PER_HEAD: int | None = None
  # None takes the value of the checkpoint's gptj_config.json.
  ROTARY_DIM: int | None = None
  # Positions the model was trained for; the limit of prompt plus new tokens.
  MAX_POSITION_EMBEDDINGS: int | None = None
  # None takes the value of the checkpoint's gptj_config.json.
  LAYER_NORM_EPSILON: float | None = None
  # Attention scores, and logits, become cap * tanh(value / cap).
  ATTEN_LOGIT_CAP: float | None = None
  SOFTMAX_CAP_LOGITS: float | None = None
  # The type of stored weights and of activations: 'float32' or 'bfloat16'.
  MODEL_DTYPE: str = 'float32'
  FPROP_DTYPE: str = 'float32'

  # --- Devices. ---
  # The device mesh as [replica, data, model].
  ICI_MESH_SHAPE: Sequence[int] = [1, 1, 8]
  # The placement of arrays in upstream's server; it has no effect here.
  DECODE_MESH_TRANSPOSE: Mapping[str, str] | None = None
  USE_BATCH_SHARDING: bool = False
  EMB_LOOKUP_STYLE: str = 'index'
  # Flags for upstream's compiler, see `xla_flags`; only program sets use them
  # here.
  XLA_TPU_FLAGS: Mapping[str, str] = {}

  # --- Batching. ---
  # The largest value is the number of slots: beam groups decoded together.
  BATCH_SIZE: int | Sequence[int] = 1
  # Seconds that a request may wait to share its prefill; None stands for 0.
  BATCH_WAIT_SECS: float | None = None
  # The limit of pending requests, as a multiple of the largest batch size.
  MAX_LIVE_BATCHES: int = 4
  # If above 0, the number of slots instead of the largest BATCH_SIZE.
  NUM_CACHE_SLOTS: int = 0

  # --- Lengths, in tokens. ---
  INPUT_SEQ_LEN: int = 256
  # True if a longer prompt is an error instead of being truncated.
  FAIL_ON_INPUT_TRUNCATION: bool = False
  # The end that a truncated prompt keeps: True for the left, False for the
  # right.
  SLICE_LEFT: bool = True
  # The longest suffix to score; 0 if prefix and suffix share INPUT_SEQ_LEN.
  SUFFIX_SEQ_LEN: int = 0
  MIN_DECODE_STEPS: int = 0
  # The largest value is the maximum number of tokens of an answer.
  MAX_DECODE_STEPS: int | Sequence[int] = 32
  # If set, an answer that is one sample may use all tokens that its prompt
  # leaves of this length. MAX_DECODE_STEPS then limits the other answers. It
  # requires MIXED_SEARCH and PREFILL_CHUNK_LEN, and BUCKET_KEYS are the lengths
  # to which the last chunk of a prompt is padded. On accelerators, all answers
  # have the limit MAX_DECODE_STEPS, and prompts have the rest.
  CONTEXT_LEN: int | None = None
  # Prompt plus answer; None stands for INPUT_SEQ_LEN plus MAX_DECODE_STEPS.
  MAX_SEQ_LEN: int | None = None
  # Lengths to which prompts are padded, with a compiled program each. None
  # stands for one bucket of INPUT_SEQ_LEN.
  BUCKET_KEYS: Sequence[int] | None = None

  # --- Selection of tokens. ---
  NUM_SAMPLES: int = 2
  # The likeliest tokens from which samples are drawn; 0 stands for all. It is
  # the default of requests. It is also their maximum, except with MIXED_SEARCH.
  TOP_K: int = 40
  TOP_K_RECALL_TARGET: float = 1.0
  USE_TOP_K_FOR_LOGPROBS: bool = False
  TEMPERATURE: float = 0.0
  GLOBAL_NORMALIZE: bool = False
  SORT_SAMPLES: bool = True
  NEXT_TOKEN_SAMPLER_TPL: Any = None
  USE_BEAM_SEARCH: bool = False
  BEAM_SIZE: int = 4
  TOKENS_PER_BEAM: int | None = None
  # These two and TOKENS_PER_BEAM only affect Pax's beam rule.
  LENGTH_NORM_ALPHA: float = 0.8
  BEAM_SEARCH_EARLY_EXIT: bool = False
  # These control the beams and the cache of upstream. They have no effect here,
  # because beams are never moved in memory and share the prompt's cache.
  USE_MATMUL_BEAM_SHUFFLE: bool = False
  FPROP_FOR_PREFIX: bool = True
  SUPPORT_LAZY_PREFIX_BROADCAST: bool = True

  # --- Vocabulary. ---
  VOCAB_SIZE: int | None = 32000
  SPM_MODEL: str | None = None
  # One of the names of stock Sax, or None. It has no effect: the file itself
  # determines its format.
  VOCABULARY_CLASS: str | None = None
  # The path of a tokenizer.json, a SentencePiece model or the directory of one.
  # None stands for SPM_MODEL, or for the tokenizer beside the checkpoint.
  VOCABULARY_PATH: str | None = None
  # The text is comma-separated ids, for both input and output.
  TOKENIZED_INPUT: bool = False
  TOKENIZED_OUTPUT: bool = False
  PREPEND_SOS: bool = True
  # None takes the id that the tokenizer adds before a text, if it adds one. Then
  # prompts of ids get no id.
  SOS_ID: int | None = 0
  # None takes STOP_TOKEN_IDS, or else the checkpoint's gptj_config.json.
  EOS_ID: int | None = 1
  # GPT-J's format in MLPerf: no start id, and padding with the end id.
  EOS_PADDING_AND_NO_SOS: bool = False
  # All ids that end an answer. None stands for [EOS_ID], or for all end ids of
  # the checkpoint if EOS_ID is None.
  STOP_TOKEN_IDS: Sequence[int] | None = None
  NUM_EXTRA_IDS: int = 0
  REVERSE_EXTRA_IDS: bool = True

  # --- Requests. ---
  # The keys that a request may set, with their defaults.
  EXTRA_INPUTS: Mapping[str, Any] = {'temperature': 0.1}
  EXTRA_INPUTS_DTYPES: Mapping[str, Any] = {}
  SCORE_EXTRA_INPUTS: Mapping[str, Any] = {}

  # --- Methods. ---
  SCORE_ONLY: bool = False
  GENERATE_ONLY: bool = False
  ENABLE_GENERATE: bool = True
  ENABLE_GENERATE_STREAM: bool = False
  STREAM_INTERVAL_STEPS: int = 1
  INCLUDE_PREFIX_IN_RESULT: bool = False
  GENERATION_USE_GEOMEAN_PROB_SCORE: bool = False
  SCORING_USE_GEOMEAN_PROB_SCORE: bool = False
  SCORING_INCLUDE_EOS_SCORE: bool = False
  PRECOMPUTE_KV_CACHE_PREFIX: str | None = None
  FETCH_PREFIX_LENGTHS_FROM_INPUTS: bool = False
  POLYMORPHIC_SEQ_LEN_EXCLUSION: Any = None
  TEXT_TO_EMBEDDING_SERVING_BATCH_SIZE: int = 1
  TEXT_TO_EMBEDDING_MAX_LIVE_BATCHES: int = 1
  # Embeddings of texts, from the hidden states after the final layer norm. The
  # method 'encode' returns the state of the 'last_token' or the 'mean' of all
  # states. If either attribute is None, there are no embeddings.
  TEXT_TO_EMBEDDING_OUTPUT_EMBEDDING_NAME: str | None = None
  TEXT_TO_EMBEDDING_MODEL_METHOD_NAME: str | None = None
  INCLUDE_EOS_SCORE: bool = False
  # ['embeddings']: gradients of scores by the inputs of the first layer, for
  # the tokens of prefix and suffix. None: no gradients.
  GRADIENT_WRT_INPUT_TENSOR_NAMES: Sequence[str] | None = None
  GRADIENT_WRT_MDL_VAR_TENSOR_NAMES: Sequence[str] | None = None

  # --- Own attributes. ---
  # The name of the family, see `families/all.py`.
  ARCHITECTURE: str = 'gptj'
  # The base of the wavelengths of rotary positions, and Llama 3.1's scaling
  # [factor, low_freq_factor, high_freq_factor, original length]. A checkpoint
  # with other values overrides them. Without any, the base is 10,000.
  ROTARY_BASE: float | None = None
  ROTARY_SCALING: Sequence[float] | None = None
  # 'reference': the beam search of transformers, which MLPerf uses; 'pax': that
  # of praxis, see `saxml_ext.engine.search.pax_beam`.
  BEAM_RULE: str = 'reference'
  # Reference rule: a score is the summed log-probability divided by the length
  # to this power.
  LENGTH_PENALTY: float = 1.0
  # Reference rule: a group ends when BEAM_SIZE hypotheses have ended.
  EARLY_STOPPING: bool = True
  # True if requests may choose between beam search and samples. Each request
  # has BEAM_SIZE beams or NUM_SAMPLES samples. USE_BEAM_SEARCH is the default.
  MIXED_SEARCH: bool = False
  # The maximum number of likeliest tokens per position that a request may get.
  MAX_LOGPROBS: int = 0
  # - 'none': no quantization.
  # - 'int8': matrices of a float checkpoint become int8 at load time, and so do
  #   the activations that are multiplied with them.
  # - 'int8_weights': only the matrices become int8. Stock Sax calls this int8.
  # - 'int8_fine': activations have 15 bits on CPUs with a kernel for it, and are
  #   floats elsewhere.
  # - 'int4': matrices of layers become 4 bits, in groups of 32 with a scale and a
  #   minimum, and activations 8 bits in the same groups. The sums over a matrix
  #   must be multiples of 32 long, and the model must be on one device.
  # - 'fp8': on an NVIDIA GPU, matrices of a float checkpoint become fp8 (e4m3)
  #   at load time, and so do activations. The model must be on one device.
  QUANTIZATION: str = 'none'
  # True if QUANTIZATION includes the head (praxis' softmax layer). This is
  # faster, but the head affects the choice of tokens most. praxis keeps it in
  # float.
  QUANTIZE_SOFTMAX: bool = False
  # The type of keys and values: 'float32', 'bfloat16' or 'int8'; None stands
  # for FPROP_DTYPE.
  KV_CACHE_DTYPE: str | None = None
  # Prompts longer than this number of tokens are prefilled in chunks, between
  # which other requests are decoded. 0 prefills each prompt at once.
  PREFILL_CHUNK_LEN: int = 0
  # The number of decode steps between two chunks.
  PREFILL_INTERVAL_STEPS: int = 4
  # True if the model serves as soon as it has the programs for short requests.
  # The others are compiled behind it, and a request waits for those it needs.
  COMPILE_BEHIND: bool = False


def slots(params: type[ServableLMParams]) -> int:
  """Returns the number of requests that `params` decode together."""
  if params.NUM_CACHE_SLOTS > 0:
    return params.NUM_CACHE_SLOTS
  return largest(params.BATCH_SIZE)


def admission_limit(params: type[ServableLMParams]) -> int:
  """Returns the maximum number of pending requests of one method."""
  return max(1, slots(params) * params.MAX_LIVE_BATCHES)


def largest(value: int | Sequence[int]) -> int:
  """Returns the largest value of an attribute, a number or a list of numbers.

  Raises:
    ValueError: The list is empty.
  """
  return value if isinstance(value, int) else max(value)
