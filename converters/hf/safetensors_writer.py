"""Writes tensors in the safetensors format, streaming."""

from collections.abc import Iterable, Sequence
import json

import ml_dtypes
import numpy as np

from converters.hf import tensor_spec

_DTYPES = {
  np.dtype(np.float32): 'F32',
  np.dtype(np.float16): 'F16',
  np.dtype(ml_dtypes.bfloat16): 'BF16',
}


def write(
  path: str,
  specs: Sequence[tensor_spec.TensorSpec],
  tensors: Iterable[np.ndarray],
) -> None:
  """Writes a file; the same tensors give the same bytes.

  Args:
    path: of the file.
    specs: of all tensors.
    tensors: their values in the same order, consumed one at a time.
  """
  header: dict[str, dict[str, object]] = {'__metadata__': {'format': 'pt'}}
  end = 0
  for spec in specs:
    begin, end = end, end + spec.num_bytes
    header[spec.name] = {
      'dtype': _DTYPES[spec.dtype],
      'shape': list(spec.shape),
      'data_offsets': [begin, end],
    }
  text = json.dumps(header, separators=(',', ':')).encode('ascii')
  text += b' ' * (-len(text) % 8)  # readers want the tensors aligned
  with open(path, 'wb') as f:
    f.write(len(text).to_bytes(8, 'little') + text)
    for spec, tensor in zip(specs, tensors, strict=True):
      f.write(spec.to_bytes(tensor))
