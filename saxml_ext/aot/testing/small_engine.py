"""Creates a random engine with two layers, which compiles in seconds.

As a program, it writes a set of two of the engine's programs to a directory.
"""

import sys

import jax

from saxml_ext.aot import compile_set
from saxml_ext.aot import manifest
from saxml_ext.engine import config as config_lib
from saxml_ext.engine import executables as executables_lib
from saxml_ext.engine import program_keys
from saxml_ext.engine import state
from saxml_ext.engine import weights as weights_lib
from saxml_ext.engine.testing import random_model

MODEL = config_lib.ModelConfig(
  num_layers=2,
  model_dim=32,
  num_heads=2,
  head_dim=16,
  hidden_dim=64,
  rotary_dim=8,
  vocab_size=96,
)
ENGINE = config_lib.EngineConfig(
  eos_id=1,
  num_slots=2,
  max_prompt=16,
  prompt_buckets=(8, 16),
  decode_widths=(2,),
  prefill_chunk=8,
  max_new_tokens=6,
  min_new_tokens=2,
  suffix_block=4,
)
SERVING = manifest.Serving('params.of.Tests', {})


def weights() -> weights_lib.Weights:
  """Returns random weights, the same in each call."""
  return weights_lib.from_pax(random_model.variables(MODEL), MODEL)


def executables() -> executables_lib.Executables:
  """Returns the engine's programs, with shapes in place of the weights."""
  return executables_lib.Executables(
    state.Settings(MODEL, ENGINE), jax.eval_shape(weights)
  )


def main(path: str) -> None:
  keys: list[state.Key] = [program_keys.Decode(2), program_keys.Hypotheses()]
  compile_set.compile_set(path, executables(), keys, SERVING)


if __name__ == '__main__':
  main(sys.argv[1])
