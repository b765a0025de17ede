"""Writes tensors in PyTorch's `.bin` format without PyTorch, streaming.

The file is what torch.save makes of a dict of contiguous tensors: a zip of
uncompressed members, a pickle of protocol 2 that describes the tensors, and
one member for the bytes of each.
"""

from collections.abc import Iterable, Sequence
import math
import struct
import zipfile

import ml_dtypes
import numpy as np

from converters.hf import tensor_spec

_STORAGE_CLASSES = {
  np.dtype(np.float32): 'FloatStorage',
  np.dtype(np.float16): 'HalfStorage',
  np.dtype(ml_dtypes.bfloat16): 'BFloat16Storage',
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
  with zipfile.ZipFile(path, 'w', zipfile.ZIP_STORED) as archive:
    _add(archive, 'data.pkl', _pickle(specs))
    _add(archive, 'byteorder', b'little')
    for key, (spec, tensor) in enumerate(zip(specs, tensors, strict=True)):
      _add(archive, f'data/{key}', spec.to_bytes(tensor))
    _add(archive, 'version', b'3\n')


def _add(archive: zipfile.ZipFile, name: str, data) -> None:
  info = zipfile.ZipInfo(f'archive/{name}')  # dated 1980, whenever it runs
  with archive.open(info, 'w', force_zip64=True) as member:
    member.write(data)


def _pickle(specs: Sequence[tensor_spec.TensorSpec]) -> bytes:
  """The pickle of the dict: each value a call of torch's rebuild function."""
  out = [b'\x80\x02}(']
  for key, spec in enumerate(specs):
    out += [
      _text(spec.name),
      b'ctorch._utils\n_rebuild_tensor_v2\n(',
      # The storage, by "persistent id": kind, class, key, device, elements.
      b'(',
      _text('storage'),
      b'ctorch\n%s\n' % _STORAGE_CLASSES[spec.dtype].encode('ascii'),
      _text(str(key)),
      _text('cpu'),
      _integer(math.prod(spec.shape)),
      b'tQ',
      _integer(0),
      _sizes(spec.shape),
      _sizes(_strides(spec.shape)),
      b'\x89ccollections\nOrderedDict\n)RtR',  # no gradient, no hooks
    ]
  out.append(b'u.')
  return b''.join(out)


def _strides(shape: tuple[int, ...]) -> tuple[int, ...]:
  return tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))


def _sizes(values: Sequence[int]) -> bytes:
  return b'(' + b''.join(map(_integer, values)) + b't'


def _integer(value: int) -> bytes:
  if value < 1 << 31:
    return struct.pack('<ci', b'J', value)
  return struct.pack('<cBq', b'\x8a', 8, value)


def _text(value: str) -> bytes:
  data = value.encode('utf-8')
  return struct.pack('<cI', b'X', len(data)) + data
