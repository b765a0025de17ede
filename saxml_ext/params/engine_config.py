"""From serving params to the engine's configuration."""

import dataclasses

from saxml_ext.engine import config as config_lib
from saxml_ext.params import request_inputs
from saxml_ext.params import template


def of(params: type[template.ServableLMParams]) -> config_lib.EngineConfig:
  """Returns how the engine is to batch, search and stop.

  Its eos_id is None where the params leave EOS_ID to the checkpoint.

  Args:
    params: a class that `support.check` and `ranges.check` let pass.
  """
  mixed = params.MIXED_SEARCH
  beams = params.USE_BEAM_SEARCH or mixed
  max_new = template.largest(params.MAX_DECODE_STEPS)
  return with_eos_id(
    config_lib.EngineConfig(
      eos_id=None,
      num_slots=template.slots(params),
      max_prompt=params.INPUT_SEQ_LEN,
      prompt_buckets=_buckets(params),
      prefill_chunk=params.PREFILL_CHUNK_LEN,
      max_new_tokens=max_new,
      min_new_tokens=min(params.MIN_DECODE_STEPS, max_new),
      max_stop_ids=request_inputs.max_stop_ids(params),
      search=_search(params),
      num_beams=params.BEAM_SIZE if beams else params.NUM_SAMPLES,
      num_samples=params.NUM_SAMPLES if mixed else None,
      beam_search=params.USE_BEAM_SEARCH or not mixed,
      max_logprobs=params.MAX_LOGPROBS,
      embedding=_embedding(params),
      gradients=tuple(params.GRADIENT_WRT_INPUT_TENSOR_NAMES or ()),
      length_penalty=params.LENGTH_PENALTY,
      early_stopping=params.EARLY_STOPPING,
      length_norm_alpha=params.LENGTH_NORM_ALPHA,
      tokens_per_beam=params.TOKENS_PER_BEAM,
      early_exit=params.BEAM_SEARCH_EARLY_EXIT,
      max_top_k=params.TOP_K,
      temperature=params.TEMPERATURE,
      kv_dtype=params.KV_CACHE_DTYPE or params.FPROP_DTYPE,
      suffix_block=config_lib.suffix_block(max_new),
    ),
    params.EOS_ID,
  )


def with_eos_id(
  config: config_lib.EngineConfig, eos_id: int | None
) -> config_lib.EngineConfig:
  """Returns the same with the id that ends answers and pads prompts."""
  pad_id = config.pad_id if eos_id is None else eos_id
  return dataclasses.replace(config, eos_id=eos_id, pad_id=pad_id)


def _search(params: type[template.ServableLMParams]) -> str:
  if params.MIXED_SEARCH:
    return 'any'
  if not params.USE_BEAM_SEARCH:
    return 'sample'
  return 'pax' if params.BEAM_RULE == 'pax' else 'beam'


def _embedding(params: type[template.ServableLMParams]) -> str | None:
  # Stock Sax serves embeddings if both are named, and scores are served.
  if params.GENERATE_ONLY or params.TEXT_TO_EMBEDDING_MODEL_METHOD_NAME is None:
    return None
  return params.TEXT_TO_EMBEDDING_OUTPUT_EMBEDDING_NAME


def _buckets(params: type[template.ServableLMParams]) -> tuple[int, ...]:
  # Every prompt that is accepted needs a bucket.
  return tuple(sorted({*(params.BUCKET_KEYS or ()), params.INPUT_SEQ_LEN}))
