"""Computes the lower bound of the time at the peak rates of this processor.

The bound counts the work of any engine that shares a prompt's KV between beams
and reads the weights once per step. This work has three parts: the matrix
products of the layers and the head, attention over the prompt and over one path
of the answer, and the bytes of weights and KV. The bound does not count
softmax, top-k, norms or writes. It assumes that the slots are always full.
"""

from collections.abc import Sequence
import dataclasses

from benchmarks import models


@dataclasses.dataclass(frozen=True)
class Shape:
  """The sizes of a model, the decoding, and the types of weights and KV."""

  sizes: models.Sizes
  slots: int
  beams: int
  dtype: str
  kv: str = 'float32'

  @property
  def weight_bytes(self) -> float:
    """The number of bytes of the weights, which each decode step reads."""
    weights = self.sizes.layer_weights + self.sizes.head_weights
    return weights * models.BYTES[self.dtype]

  def kv_bytes(self, tokens: float) -> float:
    """Returns the bytes of the KV of this many tokens."""
    values = 2 * self.sizes.layers * self.sizes.key_dim * tokens
    return values * models.BYTES[self.kv]

  def step_bytes(self, context: float) -> float:
    """Returns the bytes that a step reads if each slot has this context."""
    return self.weight_bytes + self.slots * self.kv_bytes(context)


@dataclasses.dataclass(frozen=True)
class Rates:
  """The work that a core of this machine does at most in one CPU second.

  Attributes:
    read: The bytes read from a buffer of the size that a step reads.
    products: The operations on registers in the fastest format that is at least
      as precise as the weights.
    attention: The operations on registers in the fastest floating-point format.
  """

  read: float
  products: float
  attention: float


@dataclasses.dataclass(frozen=True)
class Floor:
  """The minimum of CPU seconds, and its parts.

  All decode steps together read bytes. One step reads step_bytes on average.
  """

  prefill_seconds: float
  decode_seconds: float
  read_seconds: float
  compute_seconds: float
  operations: float
  bytes: float
  step_bytes: float

  @property
  def seconds(self) -> float:
    return self.prefill_seconds + self.decode_seconds


def floor(
  shape: Shape, lengths: Sequence[tuple[int, int]], rates: Rates
) -> Floor:
  """Returns the lower bound of the time of (prompt, answer) lengths.

  Reading and computing can overlap, so a decode step takes the longer of the
  two times. Prefill computes the first token of an answer.
  """
  prefill = attention = decode_tokens = decode_attention = kv = 0.0
  sizes = shape.sizes
  for prompt, answer in lengths:
    prefill += 2.0 * (sizes.layer_weights * prompt + sizes.head_weights)
    # There are two products, and causality halves the pairs of keys and
    # queries.
    attention += 2.0 * sizes.layers * sizes.dim * prompt**2
    steps = max(0, answer - 1)
    context = prompt + (answer + 1) / 2
    decode_tokens += steps
    decode_attention += (
      4.0 * shape.beams * sizes.layers * sizes.dim * context * steps
    )
    kv += shape.kv_bytes(context) * steps
  products = (
    2.0
    * (sizes.layer_weights + sizes.head_weights)
    * shape.beams
    * decode_tokens
  )
  steps_of_all = decode_tokens / shape.slots
  read = shape.weight_bytes * steps_of_all + kv
  read_seconds = read / rates.read
  compute_seconds = (
    products / rates.products + decode_attention / rates.attention
  )
  return Floor(
    prefill_seconds=prefill / rates.products + attention / rates.attention,
    decode_seconds=max(read_seconds, compute_seconds),
    read_seconds=read_seconds,
    compute_seconds=compute_seconds,
    operations=prefill + attention + products + decode_attention,
    bytes=read,
    step_bytes=read / steps_of_all if steps_of_all else 0.0,
  )
