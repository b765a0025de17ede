"""Computes the lower bound of the time at this machine's measured rates.

The bound counts the work of any engine that shares a prompt's KV between beams
and reads the weights once per step. This work has three parts: the matrix
products of the layers and the head, attention over the prompt and over one path
of the answer, and the bytes of weights and KV. The bound does not count
softmax, top-k, norms or writes. It assumes that the slots are always full.
"""

from collections.abc import Sequence
import dataclasses

_BYTES = {'float32': 4, 'bfloat16': 2, 'int8': 1}
_KV_BYTES = _BYTES['float32']


@dataclasses.dataclass(frozen=True)
class Shape:
  """The sizes of a model and of the decoding, see `config.ModelConfig`."""

  layers: int
  dim: int
  hidden: int
  vocab: int
  slots: int
  beams: int
  dtype: str

  @property
  def layer_weights(self) -> int:
    """The number of weights in all layers: qkv, post, up and down."""
    return self.layers * (4 * self.dim**2 + 2 * self.dim * self.hidden)

  @property
  def head_weights(self) -> int:
    return self.dim * self.vocab

  @property
  def weight_bytes(self) -> int:
    """The number of bytes of the weights, which each decode step reads."""
    return (self.layer_weights + self.head_weights) * _BYTES[self.dtype]

  def kv_bytes(self, tokens: float) -> float:
    """Returns the bytes of the KV of this many tokens, in float32."""
    return 2 * self.layers * self.dim * tokens * _KV_BYTES

  def step_bytes(self, context: float) -> float:
    """Returns the bytes that a step reads if each slot has this context."""
    return self.weight_bytes + self.slots * self.kv_bytes(context)


@dataclasses.dataclass(frozen=True)
class Rates:
  """The work that the machine does in one CPU second.

  Attributes:
    read: The bytes read from a buffer of the size that a step reads.
    decode: The operations of products with slots * beams rows, in the fastest
      format that is at least as precise as the dtype.
    prefill: The operations of products with many rows, in the same format.
    attention: The operations of products with many rows, in the fastest
      floating-point format.
  """

  read: float
  decode: float
  prefill: float
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
  for prompt, answer in lengths:
    prefill += 2.0 * (shape.layer_weights * prompt + shape.head_weights)
    # There are two products, and causality halves the pairs of keys and
    # queries.
    attention += 2.0 * shape.layers * shape.dim * prompt**2
    steps = max(0, answer - 1)
    context = prompt + (answer + 1) / 2
    decode_tokens += steps
    decode_attention += (
      4.0 * shape.beams * shape.layers * shape.dim * context * steps
    )
    kv += shape.kv_bytes(context) * steps
  products = (
    2.0
    * (shape.layer_weights + shape.head_weights)
    * shape.beams
    * decode_tokens
  )
  steps_of_all = decode_tokens / shape.slots
  read = shape.weight_bytes * steps_of_all + kv
  read_seconds = read / rates.read
  compute_seconds = products / rates.decode + decode_attention / rates.attention
  return Floor(
    prefill_seconds=prefill / rates.prefill + attention / rates.attention,
    decode_seconds=max(read_seconds, compute_seconds),
    read_seconds=read_seconds,
    compute_seconds=compute_seconds,
    operations=prefill + attention + products + decode_attention,
    bytes=read,
    step_bytes=read / steps_of_all if steps_of_all else 0.0,
  )
