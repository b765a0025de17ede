"""Stores the state of a cell on disk, in three files.

    state.proto       sax.State, which stock admin servers also read and write
    state.proto.prev  a second copy
    state.proto.sum   the checksums of the good contents of the two

Each write has a number, its generation. It is stored in `last_generation`, a
field that stock admin servers ignore. It also makes the bytes of any two writes
differ, which conditional writes to S3 need. Generation g+1 is written in this
order, and each step is durable before the next one:

    1. the sums, with those of g and g+1
    2. state.proto.prev
    3. state.proto: from here on g+1 counts, and callers are answered

So both copies hold every change that was acknowledged. The second copy is
written first because a failed change must not count. While state.proto is
intact, it decides. A damaged file is copied to <name>.bad-<N> and named in the
log. A cell can start as long as one copy is good.
"""

import dataclasses
import hashlib

from absl import logging
from google.protobuf import message
from google.protobuf import unknown_fields

from saxml_ext.admin.leadership import shared_dir
from saxml_ext.common import errors
from saxml_ext.common import files
from saxml_ext.common import ids
from saxml_ext.protobuf import admin_pb2

STATE = 'state.proto'
PREVIOUS = 'state.proto.prev'
SUMS = 'state.proto.sum'
_HEADER = 'sax state sums 1'
_UUID_BYTES = 16
_MAX_GENERATION = 2**31 - 1


@dataclasses.dataclass(frozen=True)
class _Good:
  """A good file: its generation, length in bytes and SHA-256 in hex."""

  generation: int
  size: int
  digest: str

  @classmethod
  def from_data(cls, generation: int, data: bytes) -> '_Good':
    return cls(generation, len(data), hashlib.sha256(data).hexdigest())


class StateFiles:
  """The state of one cell, for one leader and one thread at a time.

  Methods raise OSError or SaxError if the storage fails. They raise Aborted if
  a newer leader writes these files.
  """

  def __init__(self, directory: shared_dir.SharedDir, cell: str, epoch: int):
    """Prepares to store the state, and reads nothing yet.

    Args:
      directory: The directory of the files.
      cell: The cell, "/sax/<cell>".
      epoch: The epoch of the leader.
    """
    self._dir = directory
    self._cell = cell
    self._epoch = epoch
    self._current: _Good | None = None
    self._previous: _Good | None = None
    self._lost_sums = False
    self._unusable = False

  def take_over(self) -> admin_pb2.State:
    """Reads the newest good state, and writes all files again.

    Raises:
      DataLoss: There are files, but none has a good state.
    """
    self._dir.take_over(self._epoch)
    state = self._load()
    self.save(state)
    return state

  def save(self, state: admin_pb2.State) -> None:
    """Makes a state the current one, durably. The object keeps the state."""
    known = {g for g in (self._previous, self._current) if g}
    # The checksums decide, and not the order of these numbers, which may wrap
    # around.
    newest = max((g.generation for g in known), default=0)
    state.last_generation = newest % _MAX_GENERATION + 1
    data = state.SerializeToString(deterministic=True)
    good = _Good.from_data(state.last_generation, data)
    self._write(SUMS, _encode_sums(known | {good}))
    self._write(PREVIOUS, data)
    self._previous = good
    self._write(STATE, data)
    self._current = good

  def _write(self, name: str, data: bytes) -> None:
    self._dir.write(name, data, self._epoch)

  # These methods read the files.

  def _read(self, name: str) -> bytes | None:
    """Returns the bytes of a file; None if it is missing or unusable."""
    try:
      return self._dir.read(name)
    except files.UnusableFileError as e:
      logging.error('%s. It is replaced if another copy is good', e)
      self._unusable = True
      return None

  def _load(self) -> admin_pb2.State:
    sums = self._load_sums()
    main, copy = self._read(STATE), self._read(PREVIOUS)
    exists = main is not None or copy is not None or self._unusable
    if copy is not None and not self._is_good(copy, sums):
      self._set_aside(PREVIOUS, copy, 'damaged')
      copy = None
    if main is not None and not self._is_good(main, sums):
      if _is_foreign(main, self._cell) and not (copy or b'').startswith(main):
        logging.warning(
          '%s was written by another program. Its contents are used',
          self._dir.path_to(STATE),
        )
        sums = None
      else:
        self._set_aside(STATE, main, 'damaged')
        main = None
    if main is None and copy is None and (exists or sums):
      raise errors.DataLoss(
        f'{self._dir.path}: {STATE} and its copy {PREVIOUS} are both damaged'
        ' or missing, so the published models of this cell are unknown.'
        f' Replace {STATE} by a backup and delete {SUMS}, or delete all three'
        ' files to start with no models. Damaged files were copied to'
        ' <name>.bad-<N>'
      )
    if main is None and copy is not None:
      logging.error(
        '%s cannot be used. The copy %s is used instead',
        self._dir.path_to(STATE),
        self._dir.path_to(PREVIOUS),
      )
    data = main if main is not None else copy
    state = _parse(data or b'') or admin_pb2.State()
    newest = [g.generation for g in sums or ()] + [state.last_generation]
    # The next write must differ from all earlier ones.
    self._current = _Good.from_data(max(newest), data or b'')
    self._previous = (
      _Good.from_data(state.last_generation, copy) if copy else None
    )
    return state

  def _load_sums(self) -> frozenset[_Good] | None:
    """Returns the good contents, or None if they are unknown."""
    data = self._read(SUMS)
    if data is None:
      self._lost_sums = self._unusable
      return None
    try:
      return _decode_sums(data)
    except ValueError as e:
      self._set_aside(SUMS, data, str(e))
      self._lost_sums = True
      return None

  def _is_good(self, data: bytes, sums: frozenset[_Good] | None) -> bool:
    if sums is None:
      state = _parse(data)
      if state is None or not _is_sound(state, self._cell):
        return False
      # An empty file is a valid state too, but this program never writes one.
      return bool(state.last_generation) or not self._lost_sums
    return any(_Good.from_data(g.generation, data) == g for g in sums)

  def _set_aside(self, name: str, data: bytes, why: str) -> None:
    try:
      copied = f'A copy is kept as {self._dir.set_aside(name, data)}'
    except (OSError, errors.SaxError) as e:
      copied = f'It could not be copied: {e}'
    logging.error(
      '%s (%d bytes) cannot be used: %s. %s',
      self._dir.path_to(name),
      len(data),
      why,
      copied,
    )


def _encode_sums(known: set[_Good]) -> bytes:
  lines = [_HEADER]
  for good in sorted(known, key=lambda g: g.generation):
    lines.append(f'{good.generation} {good.size} {good.digest}')
  text = '\n'.join(lines) + '\n'
  return f'{text}{hashlib.sha256(text.encode()).hexdigest()}\n'.encode()


def _decode_sums(data: bytes) -> frozenset[_Good]:
  """Parses the result of `_encode_sums`; raises ValueError with the problem."""
  body, _, end = data[:-1].rpartition(b'\n')
  digest = hashlib.sha256(body + b'\n').hexdigest()
  if end + data[-1:] != f'{digest}\n'.encode():
    raise ValueError('damaged')
  header, *lines = body.decode().split('\n')
  if header != _HEADER:
    raise ValueError(f'the format "{header}" is unknown')
  result = set()
  for line in lines:
    generation, size, digest = line.split(' ')
    result.add(_Good(int(generation), int(size), digest))
  return frozenset(result)


def _parse(data: bytes) -> admin_pb2.State | None:
  try:
    return admin_pb2.State.FromString(data)
  except message.DecodeError:
    return None


def _is_sound(state: admin_pb2.State, cell: str) -> bool:
  """Returns True if each model could have been published."""
  try:
    for model in state.models:
      ids.check_model_in_cell(model.model_id, cell)
      ids.check_model_path(model.model_path)
      ids.check_checkpoint_path(model.checkpoint_path)
      ids.check_replicas(model.requested_num_replicas)
  except errors.InvalidArgument:
    return False
  return len({m.model_id for m in state.models}) == len(state.models)


def _is_foreign(data: bytes, cell: str) -> bool:
  """Returns True if a stock admin server wrote this file.

  Otherwise, this program wrote it, and it is damaged. Stock files have no
  generation (not even a zero), no unknown fields, and a uuid in each model. A
  file of ours that is cut off at the end of a model looks the same, so the
  caller checks for that.
  """
  state = _parse(data)
  return (
    bool(data)
    and state is not None
    and not state.last_generation
    and state.ByteSize() == len(data)
    and not len(unknown_fields.UnknownFieldSet(state))
    and _is_sound(state, cell)
    and all(
      len(m.uuid) == _UUID_BYTES and not len(unknown_fields.UnknownFieldSet(m))
      for m in state.models
    )
  )
