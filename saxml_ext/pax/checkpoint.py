"""Finds and reads PAX checkpoints on disk or in a bucket.

  <path>/checkpoint_00000000/
    commit_success.txt
    manifest.json                             see manifest.py
    metadata/commit_success.txt
    metadata/metadata                         see metadata.py
    state/commit_success.txt
    state/mdl_vars.params.lm.final_ln.scale/  .zarray and its chunks, one
    ...                                       directory for each variable
    state/step/                               int32 scalar

paxml writes this layout where a file system has no atomic rename, and restores
it everywhere. Only manifest.json is specific to this project. All variables of
a model share the prefix `mdl_vars.`, so names omit it here. The OCDBT layout is
also read, but never written. Paths may be gs:// and s3:// URLs, see
common/storage.py.
"""

from collections.abc import Iterator, Mapping
import os
import re

import numpy as np

from saxml_ext.common import storage
from saxml_ext.pax import errors
from saxml_ext.pax import manifest
from saxml_ext.pax import metadata
from saxml_ext.pax import store

VARS = 'mdl_vars.'
MARKER = 'commit_success.txt'
MARKED = ('metadata', 'state', '')  # in the order in which they are marked
_STEP_DIR = re.compile(r'checkpoint_(\d+)')


def find_step_dir(path: str) -> str:
  """Returns the directory of the newest complete step.

  A checkpoint with all commit markers is complete. On a disk, paxml writes no
  markers. It writes to a temporary directory and renames it. Therefore a
  checkpoint without any marker is complete too, with two exceptions: one in a
  bucket, and one of this project, which always has markers. If a copy of
  paxml's checkpoint was interrupted, variables of its metadata are missing.
  `Reader` detects this.

  Args:
    path: The directory that contains `checkpoint_00000000`, or that step
      directory itself.

  Raises:
    errors.CheckpointError: There is no checkpoint, or a commit marker is
      missing.
  """
  base = path.rstrip('/')
  is_step = _STEP_DIR.fullmatch(os.path.basename(base))
  step_dir = base if is_step else _newest_step_dir(base)
  markers = [os.path.join(step_dir, part, MARKER) for part in MARKED]
  with errors.reading(step_dir):
    missing = [marker for marker in markers if not storage.exists(marker)]
    renamed = missing == markers and _was_renamed(step_dir)
  if missing and not renamed:
    raise errors.CheckpointError(
      f'{missing[0]} is missing, so the checkpoint is not complete.'
      f' {errors.AGAIN}'
    )
  return step_dir


def _was_renamed(step_dir: str) -> bool:
  return (
    not storage.is_url(step_dir)
    and not os.path.exists(os.path.join(step_dir, manifest.FILE_NAME))
    and os.path.exists(os.path.join(step_dir, 'metadata', 'metadata'))
  )


def _newest_step_dir(base: str) -> str:
  with errors.reading(
    base, 'Expected a directory that contains checkpoint_00000000.', 'listed'
  ):
    names = storage.list_dir(base)
  steps = [(int(m[1]), m[0]) for m in map(_STEP_DIR.fullmatch, names) if m]
  if not steps and 'config.json' in names:
    raise errors.CheckpointError(
      f'{base} is a Hugging Face directory, not a PAX checkpoint. Convert it'
      ' and publish the result: ./bazelw run //converters:convert_gptj_ckpt --'
      f' --base={base} --pax={base.rstrip("/")}-pax'
    )
  if not steps:
    content = ', '.join(sorted(names)[:5]) or 'nothing'
    raise errors.CheckpointError(
      f'{base} has no checkpoint_<step> directory. It contains {content}.'
      ' Expected the output of convert_gptj_ckpt.'
    )
  return os.path.join(base, max(steps)[1])


class Reader:
  """A complete checkpoint whose variables are read one at a time.

  Attributes:
    step_dir: The step directory.
    manifest: The manifest entries by variable; empty if paxml wrote the
      checkpoint.
    specs: The shape and type of every variable of the model, sorted by name.
  """

  def __init__(self, path: str):
    """Opens a checkpoint and checks its structure.

    Args:
      path: The checkpoint, see `find_step_dir`.

    Raises:
      errors.CheckpointError: The checkpoint is incomplete, or its arrays do not
        match its metadata.
    """
    self.step_dir = find_step_dir(path)
    self._state_dir = os.path.join(self.step_dir, 'state')
    stored = store.list_names(self._state_dir)
    self._arrays = {
      name.removeprefix(VARS): store.open_array(self._state_dir, name)
      for name in sorted(stored)
      if name.startswith(VARS)
    }
    self.specs: Mapping[str, metadata.ArraySpec] = {
      name: store.spec_of(array) for name, array in self._arrays.items()
    }
    self._check_against_metadata()
    self.manifest = self._read_manifest()

  @property
  def directory(self) -> str:
    """The parent of the step directory; it has the files that describe it."""
    return os.path.dirname(self.step_dir.rstrip('/'))

  def read(self, name: str) -> np.ndarray:
    """Reads one variable.

    Args:
      name: The variable.

    Raises:
      errors.CheckpointError: The variable does not exist or is damaged.
    """
    return self.read_part(name, ())

  def read_part(
    self, name: str, slices: tuple[slice | int, ...] | slice | int
  ) -> np.ndarray:
    """Reads a part of one variable.

    Only the chunks with the part are read, but each of them completely.

    Args:
      name: The variable.
      slices: The part, for example `np.s_[10:20, :, 0:5]` or `np.s_[3]`.

    Raises:
      errors.CheckpointError: The variable does not exist or is damaged.
    """
    array = self._array(name)[slices]
    return store.read(array, f'{self._state_dir}: {name}')

  def read_rows(self, name: str) -> Iterator[tuple[int, np.ndarray]]:
    """Reads one variable in the parts that checkpoint_writer.Writer takes.

    Args:
      name: The variable.

    Returns:
      An iterator over pairs of the first row's index and the rows, along the
      first axis.

    Raises:
      errors.CheckpointError: The variable does not exist or is damaged.
    """
    return store.read_rows(self._array(name), f'{self._state_dir}: {name}')

  def verify(self, name: str) -> bool:
    """Compares a variable with its checksum in manifest.json.

    Args:
      name: The variable.

    Returns:
      True if there is a checksum. Checkpoints that paxml wrote have no
      manifest.

    Raises:
      errors.CheckpointError: The variable is damaged or does not match the
        manifest.
    """
    entry = self.manifest.get(name)
    if entry is None:
      return False
    actual = manifest.entry_of(self.specs[name], self.read_rows(name))
    if actual != entry:
      raise errors.CheckpointError(
        f'{self._state_dir}: variable {name} is {actual.spec} with checksum'
        f' {actual.crc32}. The manifest has {entry.spec} with {entry.crc32}.'
        f' {errors.AGAIN}'
      )
    return True

  def _array(self, name: str):
    if name not in self._arrays:
      raise errors.CheckpointError(
        f'{self.step_dir} has no variable {name}. It has {len(self.specs)}'
        f' variables: {", ".join(list(self.specs)[:3])} ...'
      )
    return self._arrays[name]

  def _read_manifest(self) -> Mapping[str, manifest.Entry]:
    where = os.path.join(self.step_dir, manifest.FILE_NAME)
    with errors.reading(where, errors.AGAIN):
      if not storage.exists(where):
        return {}
      return manifest.decode(storage.read_bytes(where), where)[1]

  def _check_against_metadata(self) -> None:
    where = os.path.join(self.step_dir, 'metadata', 'metadata')
    with errors.reading(where, errors.AGAIN):
      stated = metadata.decode(storage.read_bytes(where), where)
    for full_name, expected in sorted(stated.items()):
      name = full_name.removeprefix(VARS)
      actual = self.specs.get(name)
      if actual != expected:
        raise errors.CheckpointError(
          f'{self._state_dir}: variable {name} is {actual or "missing"}. The'
          f' metadata has {expected}. {errors.AGAIN}'
        )
