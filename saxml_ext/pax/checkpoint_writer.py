"""Writes PAX checkpoints, on disk or in a bucket; see checkpoint.py."""

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

  On a disk all goes to a directory of a temporary name, which `commit` renames,
  so that `checkpoint_00000000` is always a complete one. In a bucket, which
  cannot rename, all goes to its final place; readers want the commit markers,
  which are written last. The same variables give the same bytes.

  A writer that knows its `source` keeps a journal (see journal.py): killed, or
  out of space, it leaves what it has written, and the next one with `resume`
  goes on from there. Without `resume` the next one removes it first.

  A context manager: if the block ends without a commit, all that was written is
  removed if nothing or a CheckpointError (of the source) ended it, and kept for
  `resume` if an UnwritableError or anything else did.

  Attributes:
    finished: `resume` found the checkpoint complete; add and commit nothing.
    removed: what an earlier writer had left and this one has removed, or ''.
  """

  def __init__(
    self,
    path: str,
    step: int = 0,
    overwrite: bool = False,
    resume: bool = False,
    source: manifest.Source | None = None,
  ):
    """Starts a checkpoint in directory `path`, which is made if need be.

    Args:
      path: local directory or URL.
      step: number of the step.
      overwrite: replace a checkpoint of that step. On a disk the old one stays
        until the new one is complete; in a bucket it is deleted first.
      resume: go on with what an earlier writer of the same `source` has left.
      source: what the checkpoint is made of; None if it cannot be resumed.

    Raises:
      errors.CheckpointError: it has that step already and `overwrite` is off;
        what is to be resumed is of another source.
      errors.UnwritableError: the directory cannot be made.
    """
    if resume and source is None:
      raise ValueError('only a checkpoint of a known source can be resumed')
    resumed = source if resume else None
    self._source = source
    self._path = path.rstrip('/')
    self._final = f'{self._path}/checkpoint_{step:08d}'
    self._remote = storage.is_url(path)
    # paxml and orbax know this suffix for a checkpoint that is not finished.
    suffix = '' if self._remote else '.orbax-checkpoint-tmp-0'
    self._work = self._final + suffix
    # Where an older one of a disk is until it is deleted.
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
        # It may have been killed just before it did this.
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
    found, _ = manifest.decode(storage.read_bytes(where), where)
    return found == source.document()

  def _start(
    self, step: int, overwrite: bool, resumed: manifest.Source | None
  ) -> None:
    if self._is_there():
      if not overwrite:
        raise errors.CheckpointError(
          f'{self._final} exists; choose another directory or say --overwrite'
        )
      if self._remote:
        # Readers must never see the new variables under the old markers.
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
    of_no_use = kind is None or (
      issubclass(kind, errors.CheckpointError)
      and not issubclass(kind, errors.UnwritableError)
    )
    if self._source and not of_no_use:
      return
    with errors.writing(self._work):
      storage.delete(self._work)
      self._journal.clear()

  @property
  def journalled(self) -> Collection[str]:
    """The names of the variables that an earlier writer has finished."""
    return self._journal.finished.keys()

  def has(self, name: str) -> bool:
    """Whether an earlier writer has finished this variable, and it is sound.

    Reads all of it and compares its checksum. If it is sound it counts as
    added; if not, it is to be added again. Several threads may call this.
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
      return False  # Cut off by a crash of the machine: made again.
    self._entries[name] = done.entry
    return True

  def note(self, name: str) -> Any:
    """Returns the note that came with a variable, or None if there is none."""
    done = self._journal.finished.get(name)
    return done and done.note

  def add(self, name: str, value: np.ndarray, note: Any = None) -> None:
    """Writes one variable, named without `mdl_vars.`; see add_parts."""
    spec = metadata.ArraySpec.of(value)
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
    """Writes one variable, of which only few parts are held at a time.

    Args:
      name: without `mdl_vars.`.
      spec: shape and type of the whole.
      parts: for each [begin, end) of ArraySpec.row_ranges, in that order,
        begin and the rows along the first axis: an array [end - begin, ...] of
        the type, which must not be changed after it was yielded.
      note: a JSON value that the journal keeps for the writer that goes on;
        it is no part of the checkpoint.

    Raises:
      ValueError: the parts are not those.
      errors.CheckpointError: the variable was added before.
      errors.UnwritableError: it cannot be written.
    """
    if name in self._entries:
      raise errors.CheckpointError(f'variable {name} was added twice')
    full_name = checkpoint.VARS + name
    target = store.ArrayWriter(self._state_dir, full_name, spec)
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
          f'variable {name} ended after {count} of {len(ranges)} parts'
        )
      target.finish()
    except BaseException:
      # Else they could make files where the directory is being removed.
      target.abandon()
      raise
    entry = manifest.Entry.of(spec, crc32)
    with errors.writing(self._work):
      if self._source:
        self._journal.add(name, entry, note)
    self._entries[name] = entry
    if not self._remote:
      # From here on, so that the disk never has all of it to do at the end.
      directory = f'{self._state_dir}/{full_name}'
      self._syncs.append(self._syncer.submit(store.sync_files, directory))

  def commit(self) -> str:
    """Writes metadata, manifest, then the markers; returns the final path.

    Raises:
      errors.UnwritableError: the file system refuses.
    """
    with errors.writing(self._work):
      for sync in self._syncs:
        sync.result()
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
    # Killed in here, it leaves nothing that the next commit does not replace.
    storage.write_bytes(f'{self._work}/{name}', data, sole_writer=True)

  def _rename(self) -> None:
    if os.path.isdir(self._final):
      storage.delete(self._replaced)
      os.rename(self._final, self._replaced)
    os.rename(self._work, self._final)
    store.sync_path(self._path)
    storage.delete(self._replaced)


def write_checkpoint(
  path: str, variables: Iterable[tuple[str, np.ndarray]], step: int = 0
) -> str:
  """Writes a checkpoint and returns its step directory.

  Args:
    path: directory that will hold `checkpoint_00000000`.
    variables: names (without `mdl_vars.`) and arrays, consumed one at a time.
    step: number of the step.

  Raises:
    errors.CheckpointError: see Writer. Nothing is left behind then.
  """
  with Writer(path, step) as writer:
    for name, value in variables:
      writer.add(name, value)
    return writer.commit()


def _check_part(name, spec, begin, part, ranges) -> None:
  """Raises ValueError if a part is not the first of those yet to come."""
  first, end = ranges[0] if ranges else (spec.shape[0], spec.shape[0])
  shape = (end - first, *spec.shape[1:]) if spec.shape else ()
  found = (begin, part.shape, part.dtype.name)
  if not ranges or found != (first, shape, spec.dtype):
    raise ValueError(
      f'variable {name}: a part begins at row {begin} and is '
      f'{part.dtype.name}{list(part.shape)}; expected row {first} and '
      f'{spec.dtype}{list(shape)}, as row_ranges says'
    )
