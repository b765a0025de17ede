"""Opens, creates, reads and writes arrays of a checkpoint with tensorstore."""

from collections.abc import Iterator
from concurrent import futures
import contextlib
import os
import stat
from typing import Any

import numpy as np
import tensorstore as ts

from saxml_ext.common import files
from saxml_ext.common import kvstore as kvstore_lib
from saxml_ext.common import storage
from saxml_ext.pax import errors
from saxml_ext.pax import metadata

# The types that variables of praxis' layers have. Other types (NumPy objects,
# strings, structures) are refused before tensorstore opens the array.
_DTYPES = tuple(
  'float32 float16 bfloat16 float64 int8 uint8 int16 int32 int64 uint32 bool'
  ' int4'.split()
)
# No variable of any GPT-J is nearly as large. A forged shape exceeds this
# limit.
_MAX_BYTES = 1 << 36
# The size that a file of a chunk may have in addition, for its header.
_FILE_BYTES = 1 << 20
_SYNC_THREADS = 16
# Two threads compress one part each while the next part is prepared.
_PARTS_IN_FLIGHT = 2
_OCDBT_MANIFEST = 'manifest.ocdbt'


def is_ocdbt(state_dir: str) -> bool:
  """Returns True if the arrays are in one OCDBT database."""
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
  """Returns the names of the arrays in `state`, for both layouts."""
  if is_ocdbt(state_dir):
    check_regular(state_dir)
    kvstore = ts.KvStore.open(_kvstore(state_dir)).result()
    keys = [key.decode('utf-8') for key in kvstore.list().result()]
  elif storage.is_url(state_dir):
    keys = storage.list_tree(state_dir)
  else:
    # Listing only one level avoids visiting every chunk.
    keys = [f'{e.name}/.zarray' for e in os.scandir(state_dir)]
    keys = [k for k in keys if os.path.exists(os.path.join(state_dir, k))]
  return {k[: -len('/.zarray')] for k in keys if k.endswith('/.zarray')}


def open_array(state_dir: str, name: str) -> ts.TensorStore:
  """Opens an array for reading.

  Args:
    state_dir: The `state` directory of the checkpoint.
    name: The array.

  Raises:
    errors.CheckpointError: The array is missing or damaged, or has a type or
      size that is not valid for weights.
  """
  where = f'{state_dir}: variable {name}'
  _check_present(state_dir, name)
  largest = 0
  if not is_ocdbt(state_dir):
    largest = check_regular(f'{state_dir}/{name}')
  # With `fill_missing_data_reads`, a lost file would be read as zeros.
  spec = {
    'driver': 'zarr',
    'kvstore': _kvstore(state_dir, name),
    'fill_missing_data_reads': False,
  }
  try:
    array = ts.open(spec, open=True, read=True).result()
  except (ValueError, OSError) as e:
    raise errors.CheckpointError(
      f'{where} cannot be opened: {kvstore_lib.error_text(e)}. {errors.AGAIN}'
    ) from e
  if array.dtype.name not in _DTYPES:
    raise errors.CheckpointError(
      f'{where} has type {array.dtype.name}. Expected one of '
      f'{", ".join(_DTYPES)}.'
    )
  size = array.size * array.dtype.numpy_dtype.itemsize
  chunk = array.chunk_layout.read_chunk.shape or ()
  chunk_size = int(np.prod(chunk, dtype=object) or 1)
  # Data that cannot be compressed grows by a fraction of a percent.
  if largest > _FILE_BYTES + 2 * chunk_size * array.dtype.numpy_dtype.itemsize:
    raise errors.CheckpointError(
      f'{where} has a file of {largest} bytes, but a chunk has the shape'
      f' {list(chunk)}. {errors.AGAIN}'
    )
  if max(size, chunk_size) > _MAX_BYTES:
    raise errors.CheckpointError(
      f'{where} claims shape {list(array.shape)} in chunks of {list(chunk)}, '
      f'more than {_MAX_BYTES} bytes. No model has such a variable.'
    )
  return array


def spec_of(array: ts.TensorStore) -> metadata.ArraySpec:
  return metadata.ArraySpec(tuple(array.shape), array.dtype.name)


def read(array: ts.TensorStore, where: str) -> np.ndarray:
  """Reads an open array, or a part of one (`array[0:10]`).

  Args:
    array: The array.
    where: The path of the array, for messages.

  Raises:
    errors.CheckpointError: A chunk is missing, truncated or damaged.
  """
  with errors.reading(where, errors.AGAIN):
    return array.read(order='C').result()


def read_rows(
  array: ts.TensorStore, where: str
) -> Iterator[tuple[int, np.ndarray]]:
  """Reads an open array in the parts of ArraySpec.row_ranges; see `read`."""
  for begin, end in spec_of(array).row_ranges:
    yield begin, read(array[begin:end] if array.rank else array, where)


class ArrayWriter:
  """Writes one array in paxml's format: chunks of limited size.

  Written data survives a crash of the machine only after `sync_files`.
  """

  def __init__(
    self,
    state_dir: str,
    name: str,
    spec: metadata.ArraySpec,
    compress: bool = True,
  ):
    """Creates the array.

    Args:
      state_dir: The `state` directory of the checkpoint.
      name: The array.
      spec: The shape and type of the array.
      compress: True to compress chunks by zstd level 1, as paxml does.

    Raises:
      errors.UnwritableError: The file system reports an error, for example
        because it is full or read-only.
    """
    self._where = f'{state_dir}: variable {name} of {spec}'
    self._spec = spec
    self._pending: list[ts.WriteFutures] = []
    kvstore = kvstore_lib.spec(f'{state_dir}/{name}/')
    if kvstore['driver'] == 'file':
      # The files are not synced one by one, because sync_files syncs all of
      # them.
      kvstore['file_io_sync'] = False
    with errors.writing(self._where):
      # A killed writer may have left files of this array.
      if storage.exists(f'{state_dir}/{name}/.zarray'):
        storage.delete(f'{state_dir}/{name}')
      self._array = ts.open(
        {
          'driver': 'zarr',
          'kvstore': kvstore,
          'metadata': {
            'compressor': {'id': 'zstd', 'level': 1} if compress else None,
            'chunks': list(spec.chunk_shape),
            'shape': list(spec.shape),
          },
          'dtype': spec.dtype,
          # Zeros are written like other values, so that a missing file is not
          # mistaken for a bias of zeros.
          'store_data_equal_to_fill_value': True,
        },
        create=True,
      ).result()

  def write(self, begin: int, part: np.ndarray) -> None:
    """Starts to write rows; waits while two earlier parts are being written.

    Args:
      begin: The first row.
      part: The rows, which must not change afterwards.
    """
    target = self._array
    if self._spec.shape:
      target = target[begin : begin + part.shape[0]]
    self.finish(_PARTS_IN_FLIGHT - 1)
    self._pending.append(
      target.write(part, can_reference_source_data_indefinitely=True)
    )

  def abandon(self) -> None:
    """Waits for all pending writes and ignores their errors."""
    for write in self._pending:
      with contextlib.suppress(Exception):
        write.result()
    self._pending.clear()

  def finish(self, unfinished: int = 0) -> None:
    """Waits until at most `unfinished` parts are still being written."""
    with errors.writing(self._where):
      while len(self._pending) > unfinished:
        self._pending.pop(0).result()


def write(state_dir: str, name: str, value: np.ndarray) -> None:
  """Writes a whole array; see ArrayWriter."""
  writer = ArrayWriter(state_dir, name, metadata.ArraySpec.from_array(value))
  writer.write(0, value)
  writer.finish()


def sync_files(directory: str) -> None:
  """Syncs all files and directories below a directory to the disk.

  The calls run in parallel, because a file system commits all waiting files at
  once. Syncing one file at a time takes several times as long.

  Args:
    directory: The directory.
  """
  paths = [
    os.path.join(parent, name)
    for parent, _, names in os.walk(directory)
    for name in (*names, '')
  ]
  with futures.ThreadPoolExecutor(_SYNC_THREADS) as pool:
    list(pool.map(sync_path, paths))  # Raises errors of the threads.


def sync_path(path: str) -> None:
  """Syncs one file or directory to the disk."""
  descriptor = os.open(path, os.O_RDONLY)
  try:
    os.fsync(descriptor)
  finally:
    os.close(descriptor)


def check_regular(directory: str) -> int:
  """Returns the size of the largest file in a local directory.

  Tensorstore would wait for a FIFO forever, and read a device without end.

  Raises:
    errors.CheckpointError: A file is not regular.
  """
  if storage.is_url(directory):
    return 0
  largest = 0
  for name in storage.list_tree(directory):
    path = f'{directory}/{name}'
    with errors.reading(path, errors.AGAIN):
      status = os.stat(path)
      if not stat.S_ISREG(status.st_mode):
        raise files.UnusableFileError(path, 'it is not a regular file')
    largest = max(largest, status.st_size)
  return largest


def _check_present(state_dir: str, name: str) -> None:
  """Refuses missing arrays and names that are paths."""
  if not name or '/' in name or '\0' in name or name in ('.', '..'):
    raise errors.CheckpointError(
      f'{name!r} is not the name of a variable. Expected parts joined with '
      'dots, such as params.lm.final_ln.scale.'
    )
  if is_ocdbt(state_dir):
    return
  if not storage.exists(f'{state_dir}/{name}/.zarray'):
    raise errors.CheckpointError(
      f'{state_dir}: variable {name} is missing. {errors.AGAIN}'
    )
