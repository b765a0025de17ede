"""The attributes of serving params for language models, with their defaults.

Names, defaults and meanings are Sax's; the section "own attributes" holds
what this server adds. A params class derives from `ServableLMParams` and sets
what differs; a publish may override single attributes
(`saxml_ext.params.overrides`). `saxml_ext.params.settings` turns a class into
checked settings and refuses what the engine cannot do.
"""

from collections.abc import Mapping, Sequence
from typing import Any


class ServableLMParams:
  """Serving attributes of a language model."""

  # Whether a checkpoint of `None` is served, as random weights. Its name is
  # Sax's, and a publish cannot override it.
  test_mode: bool = False

  # --- Shape of the model; None is read off the checkpoint, else checked. ---
  NUM_LAYERS: int | None = None
  MODEL_DIMS: int | None = None
  HIDDEN_DIMS: int | None = None
  NUM_HEADS: int | None = None
  DIMS_PER_HEAD: int | None = None
  # None is read from the checkpoint's gptj_config.json.
  ROTARY_DIM: int | None = None
  # Positions the model was trained for; bounds prompt plus new tokens.
  MAX_POSITION_EMBEDDINGS: int | None = None
  # None as for ROTARY_DIM.
  LAYER_NORM_EPSILON: float | None = None
  # Scores of attention, and logits, are cap * tanh(value / cap).
  ATTEN_LOGIT_CAP: float | None = None
  SOFTMAX_CAP_LOGITS: float | None = None
  # Of stored weights and of activations: 'float32' or 'bfloat16'.
  MODEL_DTYPE: str = 'float32'
  FPROP_DTYPE: str = 'float32'

  # --- Devices. ---
  # Device mesh as [replica, data, model].
  ICI_MESH_SHAPE: Sequence[int] = [1, 1, 8]
  # Where upstream places what; without effect here.
  DECODE_MESH_TRANSPOSE: Mapping[str, str] | None = None
  USE_BATCH_SHARDING: bool = False
  EMB_LOOKUP_STYLE: str = 'index'
  # For upstream's compiler, see `xla_flags`; here for program sets alone.
  XLA_TPU_FLAGS: Mapping[str, str] = {}

  # --- Batching. ---
  # The largest value is the number of slots: beam groups decoded together.
  BATCH_SIZE: int | Sequence[int] = 1
  # Seconds a request may wait for others to share its prefill; None is 0.
  BATCH_WAIT_SECS: float | None = None
  # Times the largest batch size: requests held before more are refused.
  MAX_LIVE_BATCHES: int = 4
  # If above 0, the number of slots instead of the largest BATCH_SIZE.
  NUM_CACHE_SLOTS: int = 0

  # --- Lengths, in tokens. ---
  INPUT_SEQ_LEN: int = 256
  # Whether a longer prompt is an error instead of being cut.
  FAIL_ON_INPUT_TRUNCATION: bool = False
  # Which end of a prompt that is cut stays: True the left, False the right.
  SLICE_LEFT: bool = True
  # Longest suffix to score; 0: prefix and suffix share INPUT_SEQ_LEN.
  SUFFIX_SEQ_LEN: int = 0
  MIN_DECODE_STEPS: int = 0
  # The largest value is the most tokens an answer may have.
  MAX_DECODE_STEPS: int | Sequence[int] = 32
  # Prompt plus answer; None is INPUT_SEQ_LEN plus MAX_DECODE_STEPS.
  MAX_SEQ_LEN: int | None = None
  # Lengths prompts are padded to, each a compiled program; None is one
  # bucket of INPUT_SEQ_LEN.
  BUCKET_KEYS: Sequence[int] | None = None

  # --- Choice of tokens. ---
  NUM_SAMPLES: int = 2
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
  # These two and TOKENS_PER_BEAM concern Pax's beam rule alone.
  LENGTH_NORM_ALPHA: float = 0.8
  BEAM_SEARCH_EARLY_EXIT: bool = False
  # How upstream moves beams and fills the cache; without effect here, where
  # beams are never moved in memory and a prompt is stored once for its beams.
  USE_MATMUL_BEAM_SHUFFLE: bool = False
  FPROP_FOR_PREFIX: bool = True
  SUPPORT_LAZY_PREFIX_BROADCAST: bool = True

  # --- Vocabulary. ---
  VOCAB_SIZE: int | None = 32000
  SPM_MODEL: str | None = None
  # 'GPT2BPEVocabulary' or None; the file itself shows what it is.
  VOCABULARY_CLASS: str | None = None
  # A tokenizer.json, a SentencePiece model or the directory of one; None is
  # SPM_MODEL, and if there is none, what lies beside the checkpoint.
  VOCABULARY_PATH: str | None = None
  # Text is comma-separated ids, on the way in and on the way out.
  TOKENIZED_INPUT: bool = False
  TOKENIZED_OUTPUT: bool = False
  PREPEND_SOS: bool = True
  SOS_ID: int = 0
  # None is read from the checkpoint's gptj_config.json.
  EOS_ID: int | None = 1
  # GPT-J's way in MLPerf: no start id, padded with the end id.
  EOS_PADDING_AND_NO_SOS: bool = False
  # None is [EOS_ID].
  STOP_TOKEN_IDS: Sequence[int] | None = None
  NUM_EXTRA_IDS: int = 0
  REVERSE_EXTRA_IDS: bool = True

  # --- Requests. ---
  # Keys a request may set, with their defaults.
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
  # Embeddings of texts: of their hidden states after the final layer norm,
  # which the method 'encode' makes, that of the 'last_token' or their 'mean'.
  # None in either: there are none.
  TEXT_TO_EMBEDDING_OUTPUT_EMBEDDING_NAME: str | None = None
  TEXT_TO_EMBEDDING_MODEL_METHOD_NAME: str | None = None
  INCLUDE_EOS_SCORE: bool = False
  # ['embeddings']: gradients of scores by what the tokens of prefix and suffix
  # put into the first layer. None: there are none.
  GRADIENT_WRT_INPUT_TENSOR_NAMES: Sequence[str] | None = None
  GRADIENT_WRT_MDL_VAR_TENSOR_NAMES: Sequence[str] | None = None

  # --- Own attributes. ---
  # Name of the family, see `families/all.py`.
  ARCHITECTURE: str = 'gptj'
  # 'reference': transformers' beam search, which is MLPerf's; 'pax': praxis',
  # see `saxml_ext.engine.search.pax_beam`.
  BEAM_RULE: str = 'reference'
  # Reference rule: a score is the summed log-probability over length to this
  # power.
  LENGTH_PENALTY: float = 1.0
  # Reference rule: a group ends when BEAM_SIZE hypotheses have ended.
  EARLY_STOPPING: bool = True
  # Whether requests may choose between beam search and samples: each has
  # BEAM_SIZE beams or NUM_SAMPLES samples, and USE_BEAM_SEARCH says which where
  # a request does not.
  MIXED_SEARCH: bool = False
  # Most of the likeliest tokens in each place that a request may have told.
  MAX_LOGPROBS: int = 0
  # 'none'; 'int8': matrices of a float checkpoint become int8 as they are
  # loaded, and so do the activations that they are multiplied with;
  # 'int8_weights': the matrices alone, which is what stock Sax calls int8.
  QUANTIZATION: str = 'none'
  # Whether QUANTIZATION takes in the head (praxis' softmax layer) as well:
  # faster, but nearest to the choice of tokens. praxis leaves it in float.
  QUANTIZE_SOFTMAX: bool = False
  # Of keys and values: 'float32', 'bfloat16' or 'int8'; None is FPROP_DTYPE.
  KV_CACHE_DTYPE: str | None = None
  # Prompts longer than this many tokens are prefilled in chunks, between which
  # other requests decode on; 0 prefills in one go.
  PREFILL_CHUNK_LEN: int = 0


def slots(params: type[ServableLMParams]) -> int:
  """Requests that `params` decode together."""
  if params.NUM_CACHE_SLOTS > 0:
    return params.NUM_CACHE_SLOTS
  return largest(params.BATCH_SIZE)


def admission_limit(params: type[ServableLMParams]) -> int:
  """Requests of one method held before further ones are refused."""
  return max(1, slots(params) * params.MAX_LIVE_BATCHES)


def largest(value: int | Sequence[int]) -> int:
  """The largest of an attribute that is a number or a list of numbers.

  Raises:
    ValueError: the list is empty.
  """
  return value if isinstance(value, int) else max(value)
