"""Writes PAX checkpoints on disk or in a bucket; see checkpoint.py."""

from collections.abc import Collection, Iterable
from concurrent import futures
import os
from typing import Any

import numpy as np

from saxml_ext.common import storage
from saxml_ext.pax import checkpoint
from saxml_ext.pax import errors
from saxml_ext.pax import manifest
from saxml_ext.pax import metadata
from saxml_ext.pax import store


class Writer:
  """Writes a checkpoint of one step, variable by variable.

  On a disk, all files go to a temporary directory, which `commit` renames. So
  `checkpoint_00000000` is always complete. A bucket cannot rename, so all files
  go to their final place. Readers require the commit markers, which are written
  last. The same variables give the same bytes.

  A writer with a `source` keeps a journal (see manifest.py). After a kill or on
  a full disk, the written files stay. The next writer with `resume` continues
  the work. Without `resume`, the next writer removes the files first.

  The writer is a context manager. A block that ends without a commit removes
  the written files in three cases: there was no exception, there was a
  CheckpointError of the source, or the writer has no `source`. After an
  UnwritableError or any other exception the files stay for `resume`.

  Attributes:
    finished: True if `resume` found a complete checkpoint. The caller must then
      add and commit nothing.
    removed: The path of unfinished files of an earlier writer that this writer
      has removed, or ''.
  """

  def __init__(
    self,
    path: str,
    step: int = 0,
    overwrite: bool = False,
    resume: bool = False,
    source: manifest.Source | None = None,
    compress: bool = True,
  ):
    """Starts a checkpoint.

    Args:
      path: The local directory or URL, which is created if it does not exist.
      step: The number of the step.
      overwrite: True to replace a checkpoint of that step. On a disk, the old
        checkpoint stays until the new one is complete. In a bucket it is
        deleted first.
      resume: True to continue the work of an earlier writer of the same
        `source`.
      source: The source of the checkpoint; None if it cannot be resumed.
      compress: True to compress variables as paxml does. Without it, they are
        larger and are loaded faster.

    Raises:
      errors.CheckpointError: The step exists and `overwrite` is off, or the
        unfinished checkpoint was made from another source.
      errors.UnwritableError: The directory cannot be created.
    """
    if resume and source is None:
      raise ValueError('`resume` requires a `source`.')
    resumed = source if resume else None
    self._source = source
    self._compress = compress
    self._path = path.rstrip('/')
    self._final = f'{self._path}/checkpoint_{step:08d}'
    self._remote = storage.is_url(path)
    # In paxml and orbax, this suffix marks an unfinished checkpoint.
    suffix = '' if self._remote else '.orbax-checkpoint-tmp-0'
    self._work = self._final + suffix
    # On a disk, the replaced checkpoint is renamed to this path until it is
    # deleted.
    self._replaced = f'{self._final}.orbax-checkpoint-tmp-1'
    self._state_dir = f'{self._work}/state'
    self._journal = manifest.Journal(f'{self._final}.journal')
    self._entries: dict[str, manifest.Entry] = {}
    self._syncs: list[futures.Future[None]] = []
    self._syncer = futures.ThreadPoolExecutor(1)
    self._committed = False
    self.removed = ''
    with errors.writing(self._work):
      self.finished = resumed is not None and self._is_finished(resumed)
      if self.finished:
        # The earlier writer may have been killed before it deleted these files.
        storage.delete(self._replaced)
        self._journal.clear()
      else:
        self._start(step, overwrite, resumed)

  def _is_finished(self, source: manifest.Source) -> bool:
    where = f'{self._final}/{manifest.FILE_NAME}'
    if not storage.exists(f'{self._final}/{checkpoint.MARKER}'):
      return False
    if not storage.exists(where):
      return False
    written, _ = manifest.decode(storage.read_bytes(where), where)
    return written == source.document()

  def _start(
    self, step: int, overwrite: bool, resumed: manifest.Source | None
  ) -> None:
    if self._is_there():
      if not overwrite:
        raise errors.CheckpointError(
          f'{self._final} exists. Choose another directory or set --overwrite.'
        )
      if self._remote:
        # Readers must never see the new variables with the old markers.
        for part in reversed(checkpoint.MARKED):
          storage.delete(os.path.join(self._final, part, checkpoint.MARKER))
    if resumed is None or not self._journal.load(resumed):
      if storage.exists(self._work):
        self.removed = self._work
        storage.delete(self._work)
      self._journal.clear()
    for part in ('state', 'metadata'):
      storage.make_dirs(f'{self._work}/{part}')
    if self._source and not self._journal.finished:
      self._journal.start(self._source)
    store.write(self._state_dir, 'step', np.array(step, np.int32))

  def _is_there(self) -> bool:
    if self._remote:
      return storage.exists(f'{self._final}/{checkpoint.MARKER}')
    return os.path.lexists(self._final)

  def __enter__(self) -> 'Writer':
    return self

  def __exit__(self, kind, *_) -> None:
    self._syncer.shutdown()
    if self.finished or self._committed:
      return
    useless = kind is None or (
      issubclass(kind, errors.CheckpointError)
      and not issubclass(kind, errors.UnwritableError)
    )
    if self._source and not useless:
      return
    with errors.writing(self._work):
      storage.delete(self._work)
      self._journal.clear()

  @property
  def journalled(self) -> Collection[str]:
    """The names of the variables that an earlier writer has finished."""
    return self._journal.finished.keys()

  def has(self, name: str) -> bool:
    """Returns True if an earlier writer has finished a variable without damage.

    The whole variable is read and compared with its checksum. An undamaged
    variable counts as added. A damaged one must be added again. Several threads
    may call this method.

    Args:
      name: The variable.
    """
    done = self._journal.finished.get(name)
    if done is None:
      return False
    try:
      array = store.open_array(self._state_dir, checkpoint.VARS + name)
      rows = store.read_rows(array, self._state_dir)
      if manifest.entry_of(store.spec_of(array), rows) != done.entry:
        return False
    except errors.CheckpointError:
      return False  # Damaged by a crash, so made again.
    self._entries[name] = done.entry
    return True

  def note(self, name: str) -> Any:
    """Returns the note of a finished variable, or None if there is none."""
    done = self._journal.finished.get(name)
    return done and done.note

  def add(self, name: str, value: np.ndarray, note: Any = None) -> None:
    """Writes one variable, named without `mdl_vars.`; see add_parts."""
    spec = metadata.ArraySpec.from_array(value)
    # A scalar has no rows.
    parts = (
      (b, value[b:e] if spec.shape else value) for b, e in spec.row_ranges
    )
    self.add_parts(name, spec, parts, note)

  def add_parts(
    self,
    name: str,
    spec: metadata.ArraySpec,
    parts: Iterable[tuple[int, np.ndarray]],
    note: Any = None,
  ) -> None:
    """Writes one variable from parts, so that only few parts are in memory.

    Args:
      name: The variable, without `mdl_vars.`.
      spec: The shape and type of the whole variable.
      parts: The pairs of `begin` and rows for each range [begin, end) of
        ArraySpec.row_ranges, in that order. The rows are an array of the
        variable's type with the shape [end - begin, ...]. The caller must not
        change them afterwards.
      note: A JSON value that the journal keeps for a resuming writer. It is not
        part of the checkpoint.

    Raises:
      ValueError: The parts do not match the spec.
      errors.CheckpointError: The variable was added before.
      errors.UnwritableError: The variable cannot be written.
    """
    if name in self._entries:
      raise errors.CheckpointError(f'variable {name} was added twice.')
    full_name = checkpoint.VARS + name
    target = store.ArrayWriter(self._state_dir, full_name, spec, self._compress)
    ranges = spec.row_ranges
    crc32 = 0
    count = 0
    try:
      for begin, part in parts:
        _check_part(name, spec, begin, part, ranges[count:])
        part = np.asarray(part, order='C')
        target.write(begin, part)
        crc32 = manifest.checksum(part, crc32)
        count += 1
      if count < len(ranges):
        raise ValueError(
          f'variable {name} has only {count} of {len(ranges)} parts.'
        )
      target.finish()
    except BaseException:
      # Pending writes could otherwise create files while the directory is
      # removed.
      target.abandon()
      raise
    entry = manifest.Entry.from_spec(spec, crc32)
    self._entries[name] = entry
    # Files are synced early, so that `commit` does not wait for all of them.
    self._syncs.append(self._syncer.submit(self._finish, name, entry, note))

  def _finish(self, name: str, entry: manifest.Entry, note: Any) -> None:
    """Syncs the files of a variable, and then adds it to the journal."""
    if not self._remote:
      store.sync_files(f'{self._state_dir}/{checkpoint.VARS}{name}')
    if self._source:
      self._journal.add(name, entry, note)

  def sync(self) -> None:
    """Waits until all added variables are on the disk and in the journal.

    Raises:
      errors.UnwritableError: The file system reports an error.
    """
    with errors.writing(self._work):
      for sync in self._syncs:
        sync.result()

  def commit(self) -> str:
    """Writes metadata, manifest and then the markers; returns the final path.

    Raises:
      errors.UnwritableError: The file system reports an error.
    """
    self.sync()
    with errors.writing(self._work):
      self._write(
        'metadata/metadata',
        metadata.encode(
          {checkpoint.VARS + n: e.spec for n, e in self._entries.items()}
        ),
      )
      self._write(
        manifest.FILE_NAME, manifest.encode(self._source, self._entries)
      )
      if not self._remote:
        store.sync_files(self._work)
      for part in checkpoint.MARKED:
        self._write(
          os.path.join(part, checkpoint.MARKER),
          b'Checkpoint commit was successful.\n',
        )
      if not self._remote:
        self._rename()
      self._committed = True
      self._journal.clear()
    return self._final

  def _write(self, name: str, data: bytes) -> None:
    # A kill leaves only files that the next commit replaces.
    storage.write_bytes(f'{self._work}/{name}', data, sole_writer=True)

  def _rename(self) -> None:
    if os.path.isdir(self._final):
      storage.delete(self._replaced)
      os.rename(self._final, self._replaced)
    os.rename(self._work, self._final)
    store.sync_path(self._path)
    storage.delete(self._replaced)


def _check_part(name, spec, begin, part, ranges) -> None:
  """Raises ValueError if a part does not match the first pending range."""
  first, end = ranges[0] if ranges else (spec.shape[0], spec.shape[0])
  shape = (end - first, *spec.shape[1:]) if spec.shape else ()
  actual = (begin, part.shape, part.dtype.name)
  if not ranges or actual != (first, shape, spec.dtype):
    raise ValueError(
      f'variable {name}: a part begins at row {begin} and is '
      f'{part.dtype.name}{list(part.shape)}. Expected row {first} and '
      f'{spec.dtype}{list(shape)}, as in row_ranges.'
    )
