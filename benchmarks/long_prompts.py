"""Measures decoding beside the prefill of long prompts, on random weights.

  bazel run //benchmarks:long_prompts -- --chunk=256 --interval=64

The model has the sizes of Llama 3.2 1B. Some slots decode all the time, one step
per call, as streams do. Their token times are measured alone, and then while one
prompt after the other is prefilled in a further slot.
"""

from collections.abc import Sequence
import time

from absl import flags
import jax
import numpy as np

from saxml_ext.common import program
from saxml_ext.engine import config as config_lib
from saxml_ext.engine import request as request_lib
from saxml_ext.engine import runner as runner_lib
from saxml_ext.engine import weights as weights_lib
from saxml_ext.engine.testing import random_model
from saxml_ext.families import llama

_CHUNK = flags.DEFINE_integer('chunk', 256, 'PREFILL_CHUNK_LEN.', 1)
_INTERVAL = flags.DEFINE_integer('interval', 64, 'PREFILL_INTERVAL_STEPS.', 1)
_PROMPT = flags.DEFINE_integer('prompt', 2668, 'Tokens of a long prompt.', 1)
_SLOTS = flags.DEFINE_integer('slots', 8, 'Slots that decode.', 1)
_LAYERS = flags.DEFINE_integer('layers', 16, 'Layers.', 1)
_VOCAB = flags.DEFINE_integer('vocab', 128256, 'Tokens.', 16)
_SECONDS = flags.DEFINE_integer('seconds', 120, 'Seconds of each phase.', 1)
_QUANTIZATION = flags.DEFINE_enum(
  'quantization', 'int8', ['none', 'int8'], 'The format of matrices.'
)
_KV = flags.DEFINE_enum(
  'kv', 'bfloat16', config_lib.KV_DTYPES, 'The format of keys and values.'
)

# The tokens over which a request's time per token is averaged: the longest answer
# of llama3.1-8b.
_WINDOW = 128
# More than a phase has: a new prompt would count as time between tokens.
_STEPS = 2048
_WARM_UP = 8


def _runner() -> runner_lib.Runner:
  model = config_lib.ModelConfig(
    num_layers=_LAYERS.value,
    model_dim=2048,
    num_heads=32,
    num_kv_heads=8,
    head_dim=64,
    hidden_dim=8192,
    rotary_dim=64,
    vocab_size=_VOCAB.value,
    architecture=llama.FAMILY.architecture,
  )
  engine = config_lib.EngineConfig(
    eos_id=0,
    num_slots=_SLOTS.value + 1,
    decode_widths=(_SLOTS.value + 1,),
    max_prompt=_PROMPT.value,
    prompt_buckets=(_PROMPT.value,),
    prefill_chunk=_CHUNK.value,
    prefill_interval=_INTERVAL.value,
    max_new_tokens=_STEPS,
    min_new_tokens=_STEPS,
    suffix_block=config_lib.suffix_block(_STEPS),
    search='sample',
    num_beams=1,
    temperature=0.0,
    kv_dtype=_KV.value,
  )
  quantization = None if _QUANTIZATION.value == 'none' else 'int8'
  weights = weights_lib.from_pax(
    random_model.variables(model), model, 'bfloat16', quantization
  )
  return runner_lib.Runner(weights, model, engine)


def _request(length: int, steps: int) -> request_lib.Request:
  tokens = np.arange(length, dtype=np.int32) % 1000 + 1
  return request_lib.Request(tokens, max_new_tokens=steps, min_new_tokens=steps)


def _measure(runner: runner_lib.Runner, long: bool) -> None:
  """Decodes for some seconds, and prints the times of tokens.

  Args:
    runner: The engine.
    long: True to prefill long prompts at the same time.
  """
  last, short = _SLOTS.value, _request(min(64, _CHUNK.value), _STEPS)
  busy: set[int] = set()
  gaps, done, first = [], 0, []
  runner.prefill_and_insert({slot: short for slot in range(last)})
  busy |= set(range(last))
  # The first steps are slower.
  for _ in range(_WARM_UP):
    runner.step(1)
  end = time.monotonic() + _SECONDS.value
  while time.monotonic() < end:
    for slot in set(range(last)) - busy:
      runner.prefill_and_insert({slot: short})
      busy.add(slot)
    if long and last not in busy:
      runner.prefill_and_insert({last: _request(_PROMPT.value, 1)})
      busy.add(last)
      began = time.monotonic()
    start = time.monotonic()
    ended = runner.step(1)
    gaps.append(time.monotonic() - start)
    if last in ended:
      done += 1
      first.append(time.monotonic() - began)
    busy -= ended.keys()
  for slot in busy:
    runner.release(slot)
  windows = np.convolve(gaps, np.full(_WINDOW, 1 / _WINDOW), 'valid')
  name = f'with prompts of {_PROMPT.value}' if long else 'decoding alone'
  texts = [
    f'{label} p50 {p50 * 1e3:.1f} ms, p99 {p99 * 1e3:.1f} ms'
    for label, times in (
      (f'time per token over {_WINDOW} tokens', windows),
      ('between tokens', gaps),
    )
    for p50, p99 in [np.percentile(times, (50, 99))]
  ]
  print(f'{name}: {"; ".join(texts)}; {len(gaps)} steps', flush=True)
  if long and done:
    rate = _PROMPT.value / np.mean(first)
    print(
      f'prefill: {rate:.0f} tokens/s, first token after'
      f' {np.mean(first):.1f} s, prompts: {done}'
    )


def main(argv: Sequence[str]) -> None:
  del argv
  runner = _runner()
  print(
    f'{jax.device_count()} device(s), chunks of {_CHUNK.value} tokens every'
    f' {_INTERVAL.value} steps'
  )
  # The first calls compile the programs.
  runner.prefill_and_insert({_SLOTS.value: _request(_PROMPT.value, 1)})
  while not runner.step(1):
    pass
  for long in (False, True):
    _measure(runner, long)


if __name__ == '__main__':
  program.run(main)
