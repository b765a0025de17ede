"""Encodes the input of a sample for the network, as named arrays.

The rules of the Network division allow the token ids of a language model as
input, uncompressed, with or without masks and segment ids. LoadGen's side must
not change the input. The arrays are therefore sent in their memory layout.
"""

from collections.abc import Iterable, Mapping, Sequence
import math

import numpy as np

from harness.network import dispatch_pb2

# The inputs of one sample by name, such as int64 token ids [T] as "input_ids".
Payload = Mapping[str, np.ndarray]

# The kinds of number types that have no references to other memory.
_KINDS = 'biuf'


def encode(payload: Payload) -> list[dispatch_pb2.Tensor]:
  """Encodes arrays as messages, in the payload's order.

  Raises:
    ValueError: An array does not contain numbers.
  """
  return [encode_array(name, array) for name, array in payload.items()]


def encode_array(name: str, array: np.ndarray) -> dispatch_pb2.Tensor:
  """Encodes one array; see `encode`."""
  if array.dtype.kind not in _KINDS:
    raise ValueError(
      f'{name!r} is an array of {array.dtype}. Only integers, floats and'
      ' booleans can be sent.'
    )
  little = array.astype(array.dtype.newbyteorder('<'), copy=False)
  return dispatch_pb2.Tensor(
    name=name, dtype=little.dtype.str, shape=little.shape, data=little.tobytes()
  )


def decode(tensors: Iterable[dispatch_pb2.Tensor]) -> dict[str, np.ndarray]:
  """Decodes messages to writable arrays.

  Raises:
    ValueError: The data of a message does not match its type and shape.
  """
  return {tensor.name: decode_array(tensor) for tensor in tensors}


def decode_array(tensor: dispatch_pb2.Tensor) -> np.ndarray:
  """Decodes one message; see `decode`."""
  try:
    dtype = np.dtype(tensor.dtype)
  except TypeError:
    dtype = None
  if dtype is None or dtype.kind not in _KINDS:
    raise ValueError(
      f'{tensor.name!r} has the type {tensor.dtype!r}, which is not a number'
      ' type.'
    )
  size = math.prod(tensor.shape) * dtype.itemsize
  if min(tensor.shape, default=0) < 0 or size != len(tensor.data):
    raise ValueError(
      f'{tensor.name!r} has {len(tensor.data)} bytes, but its shape'
      f' {list(tensor.shape)} of {tensor.dtype} needs {size}.'
    )
  array = np.frombuffer(bytearray(tensor.data), dtype)
  return array.reshape(tuple(tensor.shape))


def sizes(payloads: Sequence[Payload]) -> list[int]:
  """Returns the length of each sample: the size of its largest array."""
  return [max(array.size for array in arrays.values()) for arrays in payloads]
