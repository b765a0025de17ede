"""Measures the engine at the sizes of Llama 3.1 8B and GPT-J 6B.

The weights are random and made on the device. Each measurement has its bound:
the time in which the device reads the weights and KV of a step, or computes its
products, at the rates that were measured in the same run.
"""

from collections.abc import Iterator, Mapping
import dataclasses
import functools
import math
import statistics
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.gpu_cases import bundled
from benchmarks.gpu_cases import compilation
from saxml_ext.engine import abstract_weights
from saxml_ext.engine import config as config_lib
from saxml_ext.engine import request as request_lib
from saxml_ext.engine import runner as runner_lib
from saxml_ext.engine import weights as weights_lib

BATCHES = (1, 8, 32, 128)
# By the names of formats in cases. Activations have the format of the weights.
QUANTIZATION = {'bf16': None, 'int8': 'int8', 'fp8': 'fp8'}
_STEPS_PER_CALL = 16
_LLAMA_SIZES: Mapping[str, Any] = {
  'num_layers': 32,
  'model_dim': 4096,
  'num_heads': 32,
  'head_dim': 128,
  'hidden_dim': 14336,
  'rotary_dim': 128,
  'vocab_size': 128256,
}
_GPTJ_SIZES: Mapping[str, Any] = {
  'num_layers': 28,
  'model_dim': 4096,
  'num_heads': 16,
  'head_dim': 256,
  'hidden_dim': 16384,
  'rotary_dim': 64,
  'vocab_size': 50400,
}
_TINY_SIZES: Mapping[str, Any] = {
  'num_layers': 1,
  'model_dim': 64,
  'num_heads': 4,
  'head_dim': 32,
  'hidden_dim': 64,
  'rotary_dim': 32,
  'vocab_size': 256,
}
# The share of the device's memory for weights and slots.
_USABLE = 0.85


@dataclasses.dataclass(frozen=True)
class Shape:
  """The sizes of a model and of its requests.

  Attributes:
    model: The sizes of the model.
    prompt: The number of tokens of each prompt.
    answer: The number of tokens of each answer.
    beams: The number of beams; 1 is greedy.
    kv_bytes: The bytes of a number of keys and values.
  """

  model: config_lib.ModelConfig
  prompt: int
  answer: int
  beams: int
  kv_bytes: int = 2

  @property
  def products(self) -> int:
    """The number of weights that one row is multiplied with."""
    m = self.model
    attention = 2 * m.num_heads + 2 * m.kv_heads
    matrices = 3 if m.architecture.gated else 2
    layer = attention * m.head_dim + matrices * m.hidden_dim
    return m.model_dim * (m.num_layers * layer + m.vocab_size)

  @property
  def token_bytes(self) -> int:
    """The number of bytes of the KV of one token."""
    m = self.model
    return 2 * self.kv_bytes * m.num_layers * m.kv_heads * m.head_dim

  def slot_bytes(self) -> int:
    """Returns the bytes of the KV of one request, which its beams share."""
    return self.token_bytes * (self.prompt + self.beams * self.answer)

  def step_bytes(self, weights: int, batch: int) -> float:
    """Returns the bytes that a step reads in the middle of answers."""
    tokens = self.prompt + self.beams * self.answer / 2
    return weights + batch * self.token_bytes * tokens


def shapes(tiny: bool) -> dict[str, Shape]:
  """Returns the models by name; with `tiny`, models to test the program."""
  llama = config_lib.ModelConfig(
    **_TINY_SIZES if tiny else _LLAMA_SIZES,
    num_kv_heads=2 if tiny else 8,
    rotary_base=500000.0,
    architecture=bundled.LLAMA,
  )
  gptj = config_lib.ModelConfig(**_TINY_SIZES if tiny else _GPTJ_SIZES)
  if tiny:
    return {'llama': Shape(llama, 16, 8, 1), 'gptj': Shape(gptj, 16, 8, 2)}
  # The mean prompt of MLPerf's articles has 834 tokens of GPT-J.
  return {'llama': Shape(llama, 256, 128, 1), 'gptj': Shape(gptj, 834, 128, 4)}


def engine(shape: Shape, widths: tuple[int, ...]) -> config_lib.EngineConfig:
  """Returns settings for the requests of a shape.

  Args:
    shape: The model and its requests.
    widths: The numbers of requests that are decoded together, ascending.
  """
  search: dict[str, Any] = (
    {'num_beams': shape.beams}
    if shape.beams > 1
    else {'search': 'sample', 'num_beams': 1, 'max_top_k': 1}
  )
  return config_lib.EngineConfig(
    eos_id=1,
    num_slots=widths[-1],
    decode_widths=widths,
    max_prompt=shape.prompt,
    prompt_buckets=(shape.prompt,),
    max_new_tokens=shape.answer,
    min_new_tokens=shape.answer,
    kv_dtype='bfloat16',
    **search,
  )


def bound_seconds(
  shape: Shape, number_format: str, batch: int, rates: Mapping[str, float]
) -> float:
  """Returns the least time of a step, for reading or for computing.

  Args:
    shape: The model and its requests.
    number_format: A key of QUANTIZATION.
    batch: The number of requests.
    rates: The rates of the device; see `rates.measure`.
  """
  quantization = QUANTIZATION[number_format]
  structs = abstract_weights.shapes(shape.model, 'bfloat16', quantization)
  read = _nbytes(structs) - _nbytes(structs.embedding)
  operations = 2.0 * shape.products * batch * shape.beams
  name = quantization or 'bfloat16'
  return max(
    shape.step_bytes(read, batch) / rates['read_bytes_per_s'],
    operations / rates[f'{name}_operations_per_s'],
  )


def measure(
  shape: Shape,
  number_format: str,
  batches: tuple[int, ...],
  rates: Mapping[str, float],
  memory: int | None,
) -> Iterator[tuple[int, dict[str, Any]]]:
  """Yields each batch and its measurement, or a note instead of it.

  Args:
    shape: The model and its requests.
    number_format: A key of QUANTIZATION.
    batches: The numbers of requests that are decoded together, ascending.
    rates: The rates of the device; see `rates.measure`.
    memory: The bytes of the device; None if it has no memory of its own.
  """
  quantization = QUANTIZATION[number_format]
  structs = abstract_weights.shapes(shape.model, 'bfloat16', quantization)
  total = _nbytes(structs)
  room = math.inf if memory is None else _USABLE * memory - total
  fitting = tuple(n for n in batches if n * shape.slot_bytes() <= room)
  for batch in batches[len(fitting) :]:
    yield batch, {'note': 'does not fit into the memory'}
  if not fitting:
    return
  settings = compilation.for_platform(engine(shape, fitting))
  # Nothing is compiled beside a measurement.
  programs = compilation.compile_programs(
    structs, shape.model, settings, autotune=True
  )
  runner = programs.runner(_random_weights(structs), shape.model, settings)
  for batch in fitting:
    _decode(runner, shape, batch)  # The first calls are slower.
    step, prefill = _decode(runner, shape, batch)
    bound = bound_seconds(shape, number_format, batch, rates)
    seconds = prefill + step * (shape.answer - 1)
    yield (
      batch,
      {
        'step_ms': 1e3 * step,
        'bound_ms': 1e3 * bound,
        'share_of_bound': bound / step,
        'decode_tokens_per_s': batch / step,
        'prefill_tokens_per_s': batch * shape.prompt / prefill,
        'samples_per_s': batch / seconds,
        'compile_seconds': programs.seconds,
        'weights_bytes': total,
      },
    )


def _decode(
  runner: runner_lib.Runner, shape: Shape, batch: int
) -> tuple[float, float]:
  """Answers a batch; returns the seconds of a step and of the prefill."""
  rng = np.random.default_rng(0)
  requests = {
    slot: request_lib.Request(
      rng.integers(2, shape.model.vocab_size, shape.prompt).astype(np.int32)
    )
    for slot in range(batch)
  }
  start = time.perf_counter()
  runner.prefill_and_insert(requests)
  finished = len(runner.step(1))  # It waits for the prefill.
  if runner.overlaps:  # The second call waits for the first one.
    finished += len(runner.step(1))
  first = time.perf_counter() - start
  times = []
  while finished < batch:
    start = time.perf_counter()
    finished += len(runner.step(_STEPS_PER_CALL))
    times.append(time.perf_counter() - start)
  # The last call has fewer steps, and reads the answers. The prefill and the
  # first call had a token each.
  if len(times) > 1:
    step = statistics.median(times[:-1]) / _STEPS_PER_CALL
  else:
    step = times[0] / (shape.answer - 2)
  return step, max(first - step, 1e-9)


def _nbytes(tree: Any) -> int:
  return sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(tree))


@functools.partial(jax.jit, static_argnums=(1, 2))
def _draw(key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
  if dtype.itemsize == 1:
    return jax.random.randint(key, shape, -127, 128, jnp.int8).astype(dtype)
  return (0.02 * jax.random.normal(key, shape, jnp.bfloat16)).astype(dtype)


def _random_weights(structs: weights_lib.Weights) -> weights_lib.Weights:
  """Returns random weights, made on the device one array at a time."""
  key = jax.random.key(0, impl='rbg')

  def make(path: tuple[Any, ...], struct: jax.ShapeDtypeStruct) -> jax.Array:
    nonlocal key
    name = jax.tree_util.keystr(path)
    if 'norm' in name and name.endswith('.scale'):
      return jnp.ones(struct.shape, struct.dtype)
    if name.endswith('.scale'):  # Codes have a deviation of about 73.
      return jnp.full(struct.shape, 0.02 / 73, struct.dtype)
    key, own = jax.random.split(key)
    return _draw(own, struct.shape, struct.dtype)

  return jax.tree_util.tree_map_with_path(make, structs)
