"""One array of a checkpoint through tensorstore: open, create, write, read."""

from collections.abc import Iterator
from concurrent import futures
import contextlib
import os
from typing import Any

import numpy as np
import tensorstore as ts

from saxml_ext.common import kvstore as kvstore_lib
from saxml_ext.common import storage
from saxml_ext.pax import errors
from saxml_ext.pax import metadata

# What praxis' layers have variables of. Anything else (NumPy objects, strings,
# structures) is no weight and is refused before tensorstore sees it.
_DTYPES = tuple(
  'float32 float16 bfloat16 float64 int8 uint8 int16 int32 int64 uint32 bool'
  ' int4'.split()
)
# No variable of any GPT-J comes near it; a forged shape goes beyond it.
_MAX_BYTES = 1 << 36
_SYNC_THREADS = 16
# One is compressed on each of two threads while the next is made.
_PARTS_IN_FLIGHT = 2
_OCDBT_MANIFEST = 'manifest.ocdbt'


def is_ocdbt(state_dir: str) -> bool:
  """Returns True if the arrays lie in one OCDBT database."""
  return storage.exists(f'{state_dir}/{_OCDBT_MANIFEST}')


def _kvstore(state_dir: str, name: str = '') -> dict[str, Any]:
  inner = f'{name}/' if name else ''
  if not is_ocdbt(state_dir):
    return kvstore_lib.spec(f'{state_dir}/{inner}')
  return {
    'driver': 'ocdbt',
    'base': kvstore_lib.spec(f'{state_dir}/'),
    'path': inner,
  }


def list_names(state_dir: str) -> set[str]:
  """Returns the names of the arrays in `state`, in either layout."""
  if is_ocdbt(state_dir):
    kvstore = ts.KvStore.open(_kvstore(state_dir)).result()
    keys = [key.decode('utf-8') for key in kvstore.list().result()]
  elif storage.is_url(state_dir):
    keys = storage.list_tree(state_dir)
  else:
    # Takes no look at every chunk.
    keys = [f'{e.name}/.zarray' for e in os.scandir(state_dir)]
    keys = [k for k in keys if os.path.exists(os.path.join(state_dir, k))]
  return {k[: -len('/.zarray')] for k in keys if k.endswith('/.zarray')}


def open_array(state_dir: str, name: str) -> ts.TensorStore:
  """Opens an array for reading.

  Raises:
    errors.CheckpointError: it is absent, damaged, or of a type or size that no
      weight has.
  """
  where = f'{state_dir}: variable {name}'
  _check_present(state_dir, name)
  # Without `fill_missing_data_reads` off, a lost file would read as zeros.
  spec = {
    'driver': 'zarr',
    'kvstore': _kvstore(state_dir, name),
    'fill_missing_data_reads': False,
  }
  try:
    array = ts.open(spec, open=True, read=True).result()
  except (ValueError, OSError) as e:
    raise errors.CheckpointError(
      f'{where} cannot be opened: {kvstore_lib.error_text(e)}; convert or copy '
      'the checkpoint again'
    ) from e
  if array.dtype.name not in _DTYPES:
    raise errors.CheckpointError(
      f'{where} has type {array.dtype.name}; expected one of '
      f'{", ".join(_DTYPES)}'
    )
  size = array.size * array.dtype.numpy_dtype.itemsize
  chunk = array.chunk_layout.read_chunk.shape or ()
  chunk_size = int(np.prod(chunk, dtype=object) or 1)
  if max(size, chunk_size) > _MAX_BYTES:
    raise errors.CheckpointError(
      f'{where} claims shape {list(array.shape)} in chunks of {list(chunk)}, '
      f'more than {_MAX_BYTES} bytes; no model has such a variable'
    )
  return array


def spec_of(array: ts.TensorStore) -> metadata.ArraySpec:
  return metadata.ArraySpec(tuple(array.shape), array.dtype.name)


def read(array: ts.TensorStore, where: str) -> np.ndarray:
  """Reads all of an opened array, or of a part of one (`array[0:10]`).

  Raises:
    errors.CheckpointError: a chunk is missing, cut off or damaged.
  """
  with errors.reading(where, 'convert or copy the checkpoint again'):
    return array.read(order='C').result()


def read_rows(
  array: ts.TensorStore, where: str
) -> Iterator[tuple[int, np.ndarray]]:
  """Reads an opened array in the parts of ArraySpec.row_ranges; see read."""
  for begin, end in spec_of(array).row_ranges:
    yield begin, read(array[begin:end] if array.rank else array, where)


class ArrayWriter:
  """Writes one array as paxml does, zstd level 1, in chunks of bounded size.

  What was written survives a crash of the machine only after `sync_files`.
  """

  def __init__(self, state_dir: str, name: str, spec: metadata.ArraySpec):
    """Creates the array.

    Raises:
      errors.UnwritableError: the file system refuses (full, read-only ...).
    """
    self._where = f'{state_dir}: variable {name} of {spec}'
    self._spec = spec
    self._pending: list[ts.WriteFutures] = []
    kvstore = kvstore_lib.spec(f'{state_dir}/{name}/')
    if kvstore['driver'] == 'file':
      # Not forced to disk one by one: sync_files does it for all at once.
      kvstore['file_io_sync'] = False
    with errors.writing(self._where):
      # What a writer that was killed has left of this array.
      if storage.exists(f'{state_dir}/{name}/.zarray'):
        storage.delete(f'{state_dir}/{name}')
      self._array = ts.open(
        {
          'driver': 'zarr',
          'kvstore': kvstore,
          'metadata': {
            'compressor': {'id': 'zstd', 'level': 1},
            'chunks': list(spec.chunk_shape),
            'shape': list(spec.shape),
          },
          'dtype': spec.dtype,
          # An all-zero bias is data like any other: its file must exist,
          # so that a missing file can be told from it.
          'store_data_equal_to_fill_value': True,
        },
        create=True,
      ).result()

  def write(self, begin: int, part: np.ndarray) -> None:
    """Starts to write rows from `begin` on; `part` must not change after.

    It waits while two earlier parts are still being written.
    """
    target = self._array
    if self._spec.shape:
      target = target[begin : begin + part.shape[0]]
    self.finish(_PARTS_IN_FLIGHT - 1)
    self._pending.append(
      target.write(part, can_reference_source_data_indefinitely=True)
    )

  def abandon(self) -> None:
    """Waits until nothing is being written any more, whatever becomes of it."""
    for write in self._pending:
      with contextlib.suppress(Exception):
        write.result()
    self._pending.clear()

  def finish(self, unfinished: int = 0) -> None:
    """Waits until all but a number of parts are written."""
    with errors.writing(self._where):
      while len(self._pending) > unfinished:
        self._pending.pop(0).result()


def write(state_dir: str, name: str, value: np.ndarray) -> None:
  """Writes a whole array; see ArrayWriter."""
  writer = ArrayWriter(state_dir, name, metadata.ArraySpec.of(value))
  writer.write(0, value)
  writer.finish()


def sync_files(directory: str) -> None:
  """Forces all files and directories under a directory to the disk.

  In parallel, because a file system commits those that wait together in one
  go; one by one they take several times as long.
  """
  paths = [
    os.path.join(parent, name)
    for parent, _, names in os.walk(directory)
    for name in (*names, '')
  ]
  with futures.ThreadPoolExecutor(_SYNC_THREADS) as pool:
    list(pool.map(sync_path, paths))  # the list raises what a thread raised


def sync_path(path: str) -> None:
  """Forces one file or directory to the disk."""
  descriptor = os.open(path, os.O_RDONLY)
  try:
    os.fsync(descriptor)
  finally:
    os.close(descriptor)


def _check_present(state_dir: str, name: str) -> None:
  """Refuses names that are paths, and absent arrays, before tensorstore."""
  if not name or '/' in name or '\0' in name or name in ('.', '..'):
    raise errors.CheckpointError(
      f'{name!r} is not the name of a variable; expected parts joined with '
      'dots, such as params.lm.final_ln.scale'
    )
  if is_ocdbt(state_dir):
    return
  if not storage.exists(f'{state_dir}/{name}/.zarray'):
    raise errors.CheckpointError(
      f'{state_dir}: variable {name} is missing; convert or copy'
      ' the checkpoint again'
    )
