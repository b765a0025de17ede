"""PAX checkpoints on disk: find, read and write them.

  <path>/checkpoint_00000000/
    commit_success.txt
    metadata/commit_success.txt
    metadata/metadata                         see metadata.py
    state/commit_success.txt
    state/mdl_vars.params.lm.final_ln.scale/  .zarray and its chunk, one
    ...                                       directory for each variable
    state/step/                               int32 scalar

This is what paxml writes where a file system has no atomic rename, and what it
restores everywhere. Variables are named here without the `mdl_vars.` that all
of a model's share. The OCDBT layout is read too, never written.
"""

from collections.abc import Iterable, Mapping
import os
import re
import shutil

import numpy as np

from saxml_ext.pax import errors
from saxml_ext.pax import metadata
from saxml_ext.pax import store

_VARS = 'mdl_vars.'
_MARKER = 'commit_success.txt'
_STEP_DIR = re.compile(r'checkpoint_(\d+)')
_MAX_METADATA_BYTES = 1 << 26


def find_step_dir(path: str) -> str:
  """Returns the directory of the newest complete step.

  Args:
    path: the directory that holds `checkpoint_00000000`, or that one itself.

  Raises:
    errors.CheckpointError: there is none, or it has no commit marker.
  """
  base = os.path.normpath(path)
  if _STEP_DIR.fullmatch(os.path.basename(base)):
    step_dir = base
  else:
    step_dir = _newest_step_dir(base)
  for part in ('state', 'metadata', ''):
    marker = os.path.join(step_dir, part, _MARKER)
    if not os.path.isfile(marker):
      raise errors.CheckpointError(
          f'{marker} is missing: the checkpoint was not written or copied to '
          'its end; convert or copy it again'
      )
  return step_dir


def _newest_step_dir(base: str) -> str:
  try:
    names = os.listdir(base)
  except OSError as e:
    raise errors.CheckpointError(
        f'{base} cannot be listed: {e.strerror}; expected a directory that '
        'holds checkpoint_00000000'
    ) from e
  steps = [(int(m[1]), m[0]) for m in map(_STEP_DIR.fullmatch, names) if m]
  if not steps:
    found = ', '.join(sorted(names)[:5]) or 'nothing'
    raise errors.CheckpointError(
        f'{base} holds no checkpoint_<step> directory but {found}; expected '
        'what convert_gptj_ckpt writes'
    )
  return os.path.join(base, max(steps)[1])


class Reader:
  """A complete checkpoint, its variables read one at a time.

  Attributes:
    step_dir: the directory that is read.
    specs: shape and type of every variable of the model, sorted by name.
  """

  def __init__(self, path: str):
    """Opens the checkpoint at `path` (see find_step_dir) and checks it.

    Raises:
      errors.CheckpointError: it is incomplete, or its arrays are not those
        that its metadata names.
    """
    self.step_dir = find_step_dir(path)
    self._state_dir = os.path.join(self.step_dir, 'state')
    stored = store.list_names(self._state_dir)
    self._arrays = {
        name.removeprefix(_VARS): store.open_array(self._state_dir, name)
        for name in sorted(stored)
        if name.startswith(_VARS)
    }
    self.specs: Mapping[str, metadata.ArraySpec] = {
        name: store.spec_of(array) for name, array in self._arrays.items()
    }
    self._check_against_metadata()

  def read(self, name: str) -> np.ndarray:
    """Reads one variable.

    Raises:
      errors.CheckpointError: there is no such variable, or it is damaged.
    """
    if name not in self._arrays:
      raise errors.CheckpointError(
          f'{self.step_dir} has no variable {name}; it has {len(self.specs)}: '
          f'{", ".join(list(self.specs)[:3])} ...'
      )
    return store.read(self._arrays[name], f'{self._state_dir}: {name}')

  def _check_against_metadata(self) -> None:
    where = os.path.join(self.step_dir, 'metadata', 'metadata')
    try:
      with open(where, 'rb') as f:
        data = f.read(_MAX_METADATA_BYTES)
    except OSError as e:
      raise errors.CheckpointError(
          f'{where} cannot be read: {e.strerror}; convert or copy the '
          'checkpoint again'
      ) from e
    for full_name, expected in sorted(metadata.decode(data, where).items()):
      name = full_name.removeprefix(_VARS)
      found = self.specs.get(name)
      if found != expected:
        raise errors.CheckpointError(
            f'{self._state_dir}: variable {name} is '
            f'{found or "missing"}; expected {expected} as its metadata says; '
            'convert or copy the checkpoint again'
        )


def read_variables(
    path: str, names: Iterable[str] | None = None
) -> dict[str, np.ndarray]:
  """Reads variables into memory.

  Args:
    path: see find_step_dir.
    names: variables to read, such as `params.lm.final_ln.scale`; None for all.

  Returns:
    The arrays by name, in the types they are stored in.

  Raises:
    errors.CheckpointError: the checkpoint or a variable is missing, incomplete
      or damaged.
  """
  reader = Reader(path)
  wanted = reader.specs if names is None else names
  return {name: reader.read(name) for name in wanted}


class Writer:
  """Writes a checkpoint of one step, variable by variable.

  All goes to a directory of a temporary name, which `commit` renames, so that
  `checkpoint_00000000` is always a complete one. As a context manager it
  removes what was written when the block ends without a commit. The same
  variables give the same bytes.
  """

  def __init__(self, path: str, step: int = 0, overwrite: bool = False):
    """Starts a checkpoint in directory `path`, which is made if need be.

    Raises:
      errors.CheckpointError: it has that step already and `overwrite` is
        off, or the directory cannot be made.
    """
    self._path = path
    self._final = os.path.join(path, f'checkpoint_{step:08d}')
    # paxml and orbax know this suffix for a checkpoint that is not finished.
    self._temporary = f'{self._final}.orbax-checkpoint-tmp-0'
    self._state_dir = os.path.join(self._temporary, 'state')
    self._specs: dict[str, metadata.ArraySpec] = {}
    if os.path.lexists(self._final) and not overwrite:
      raise errors.CheckpointError(
          f'{self._final} exists; choose another directory or say --overwrite'
      )
    try:
      # Left over by a writer that was killed.
      shutil.rmtree(self._temporary, ignore_errors=True)
      os.makedirs(self._state_dir)
      os.mkdir(os.path.join(self._temporary, 'metadata'))
    except OSError as e:
      raise _unwritable(self._temporary, e) from e
    store.write(self._state_dir, 'step', np.array(step, np.int32))

  def __enter__(self) -> 'Writer':
    return self

  def __exit__(self, *exc_info) -> None:
    shutil.rmtree(self._temporary, ignore_errors=True)

  def add(self, name: str, value: np.ndarray) -> None:
    """Writes one variable, named without `mdl_vars.`.

    Raises:
      errors.CheckpointError: it was added before, or cannot be written.
    """
    full_name = _VARS + name
    if full_name in self._specs:
      raise errors.CheckpointError(f'variable {name} was added twice')
    store.write(self._state_dir, full_name, value)
    self._specs[full_name] = metadata.ArraySpec(value.shape, value.dtype.name)

  def commit(self) -> str:
    """Writes metadata, then the markers, renames; returns the final path.

    Raises:
      errors.CheckpointError: the file system refuses.
    """
    try:
      _write_file(
          os.path.join(self._temporary, 'metadata', 'metadata'),
          metadata.encode(self._specs),
      )
      store.sync_files(self._temporary)
      for part in ('metadata', 'state', ''):
        marker = os.path.join(self._temporary, part, _MARKER)
        _write_file(marker, b'Checkpoint commit was successful.\n')
        store.sync_path(marker)
        store.sync_path(os.path.dirname(marker))
      replaced = f'{self._final}.orbax-checkpoint-tmp-1'
      if os.path.isdir(self._final):
        shutil.rmtree(replaced, ignore_errors=True)
        os.rename(self._final, replaced)
      os.rename(self._temporary, self._final)
      store.sync_path(self._path)
      shutil.rmtree(replaced, ignore_errors=True)
    except OSError as e:
      raise _unwritable(self._final, e) from e
    return self._final


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


def _write_file(path: str, data: bytes) -> None:
  with open(path, 'wb') as f:
    f.write(data)


def _unwritable(path: str, error: OSError) -> errors.CheckpointError:
  return errors.CheckpointError(
      f'{path} cannot be written: {error.strerror}; free space or choose '
      'another directory'
  )
