"""Adapts the settings of the engine to a platform."""

import dataclasses
import math

from absl import logging

from saxml_ext.engine import config as config_lib
from saxml_ext.engine import logical

# The tokens of a call with several prompts. At an H200's rates, reading the
# weights takes as long as computing about 180 tokens, less than a tenth of these.
# Longer calls would delay the next decode step more.
_PREFILL_TOKENS = 2048


def without_context(config: config_lib.EngineConfig) -> config_lib.EngineConfig:
  """Returns the settings with separate limits, for accelerators and meshes.

  The answers of all requests get max_new_tokens, and prompts get the rest of
  max_context.
  """
  if not config.max_context:
    return config
  prompt = config.max_context - config.max_new_tokens
  buckets = [prompt]
  while (half := (buckets[0] + 1) // 2) >= config.buckets[0]:
    buckets.insert(0, half)
  return dataclasses.replace(
    config,
    max_context=0,
    max_prompt=prompt,
    prefill_chunk=0,
    prompt_buckets=tuple(buckets),
    suffix_block=config_lib.suffix_block(config.max_new_tokens),
  )


def on_cpu(config: config_lib.EngineConfig) -> config_lib.EngineConfig:
  """Returns the settings with float32 KV in place of bfloat16, for CPUs.

  XLA for CPU converts a whole cache to float32 and back to write one token.
  """
  if config.kv_dtype != 'bfloat16':
    return config
  logging.info('keys and values are float32 instead of bfloat16 on a CPU')
  return dataclasses.replace(config, kv_dtype='float32')


def tiled(
  config: config_lib.EngineConfig, parts: int = 1
) -> config_lib.EngineConfig:
  """Returns the settings with KV lengths that are multiples of TILE.

  They are for TPUs and GPUs. A prompt has one segment, because the kernels read
  only its used part.
  Suffixes have one block that wraps, with no more rows than a request needs.

  Args:
    config: The settings of the serving parameters.
    parts: The number of parts into which the mesh splits the slots. The kernel
      requires the same number of slots in each part.
  """
  steps = logical.TILE // math.gcd(logical.TILE, config.rows)
  if any(width % parts for width in config.widths):
    whole = {width + -width % parts for width in config.widths}
    config = dataclasses.replace(config, decode_widths=tuple(sorted(whole)))
  return dataclasses.replace(
    config,
    prompt_segments=(logical.TILE * -(-config.segments[-1] // logical.TILE),),
    suffix_block=steps * -(-config.max_new_tokens // steps),
  )


def on_gpu(config: config_lib.EngineConfig) -> config_lib.EngineConfig:
  """Returns the settings of `tiled` for one GPU without a mesh.

  One call prefills several prompts, unless long prompts are split into chunks.
  """
  config = tiled(config)
  if config.prefill_chunk or config.num_slots == 1:
    return config
  most = config.num_slots * config.max_prompt
  return dataclasses.replace(config, prefill_tokens=min(_PREFILL_TOKENS, most))
