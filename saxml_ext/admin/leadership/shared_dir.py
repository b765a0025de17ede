"""The directory that the admin servers of one cell share, with a write fence.

    <fs_root>/sax/<cell>/leader-0000000007   the claim of the seventh leader
    <fs_root>/sax/<cell>/state.proto ...     the files that the leader writes

A leader holds an *epoch*, a number that is claimed by creating a file. If
several servers try, one succeeds. The leader changes the text of its claim all
the time. If the text stays the same for too long, another server may claim the
next epoch. No clock is compared with another one.

A former leader may not know that it has a successor, for example after its
process was stopped or cut off. It must not write any more. In a bucket, its
conditional writes fail as soon as its successor has written. A local file
system has no conditional write, and a stopped process would hold a lock
forever. There, a writer

  1. writes a temporary file,
  2. checks that its epoch is still the newest,
  3. renames the temporary file.

A new leader first claims its epoch, and then deletes the temporary files of
others. If the old leader is stopped before step 2, it sees the new claim. If it
is stopped after step 2, it finds its file deleted.
"""

import abc
import contextlib
import dataclasses
import fcntl
import os
import pathlib
import re
import secrets

from absl import logging

from saxml_ext.common import cell
from saxml_ext.common import errors
from saxml_ext.common import files
from saxml_ext.common import storage

_CLAIM = re.compile(r'leader-(\d{10})')
_TEMPORARY = re.compile(r'\..*\.(\d+)\.[0-9a-f]{16}\.tmp')
# Claims have a fixed size, so that a change needs no space on the disk.
_CLAIM_BYTES = 256
_MAX_BYTES = cell.MAX_STATE_BYTES
# An unusable claim is logged once per this many seconds.
_LOG_SECS = 60
_FILE_MODE = 0o644
# A leader that resigns writes this text to its claim.
_ENDED = 'ended'


@dataclasses.dataclass(frozen=True)
class Claim:
  """The newest claim.

  Attributes:
    epoch: The number of the claim; 0 if there is none.
    text: The text that its leader wrote last.
    abandoned: True if its leader is known to have ended.
  """

  epoch: int = 0
  text: str = ''
  abandoned: bool = True


class SharedDir(abc.ABC):
  """A directory of files that one leader at a time may write.

  Methods raise OSError or a SaxError if the storage fails.
  """

  def __init__(self, path: str):
    self.path = path.rstrip('/')

  @abc.abstractmethod
  def claim(self, epoch: int, text: str) -> bool:
    """Claims an epoch. Returns False if another server was faster."""

  @abc.abstractmethod
  def renew(self, epoch: int, text: str) -> None:
    """Changes the text of this server's claim."""

  @abc.abstractmethod
  def take_over(self, epoch: int) -> None:
    """Shuts out former leaders. A new leader calls this first."""

  @abc.abstractmethod
  def read(self, name: str) -> bytes | None:
    """Returns a file's contents, or None if it does not exist.

    Raises:
      UnusableFileError: It is not a regular file, is too large, or belongs to
        another user; see `files`.
    """

  @abc.abstractmethod
  def write(self, name: str, data: bytes, epoch: int) -> None:
    """Replaces a file, durably and as a whole.

    Raises:
      Aborted: There is a newer leader, or another program changed the file
        since it was read here. Nothing was written.
    """

  def _is_abandoned(self, name: str) -> bool:
    """Returns True if the process that made a claim is known to have ended."""
    del name
    return False

  def names(self) -> list[str]:
    """Returns the names of the files, sorted; none without a directory."""
    try:
      return storage.list_dir(self.path)
    except errors.NotFound:
      return []

  def newest_epoch(self) -> int:
    """Returns the number of the newest claim; 0 if there is none."""
    return max(_claims(self.names()), default=0)

  def newest(self) -> Claim:
    """Returns the newest claim."""
    while epoch := self.newest_epoch():
      name = _claim_name(epoch)
      try:
        data = storage.read_bytes(self.path_to(name), _MAX_BYTES)
        text = data.decode('utf-8', 'replace').rstrip('\0')
        ended = text.startswith(_ENDED) or self._is_abandoned(name)
      except errors.NotFound:
        continue  # A newer leader has deleted it.
      except files.UnusableFileError as e:
        # Its leader cannot renew it, so the next epoch begins after a while.
        logging.log_every_n_seconds(logging.ERROR, '%s', _LOG_SECS, e)
        text, ended = '', False
      return Claim(epoch, text, ended)
    return Claim()

  def resign(self, epoch: int) -> None:
    """Gives up this server's claim, so that the next leader need not wait."""
    self.renew(epoch, _ENDED)

  def set_aside(self, name: str, data: bytes) -> str:
    """Copies the bytes of a bad file once, and returns the name of the copy."""
    taken = set(self.names())
    number = 1
    while (copy := f'{name}.bad-{number}') in taken:
      with contextlib.suppress(files.UnusableFileError):
        if storage.read_bytes(self.path_to(copy), _MAX_BYTES) == data:
          return copy
      number += 1
    storage.write_bytes(self.path_to(copy), data)
    return copy

  def close(self) -> None:
    """Releases the claim. The next leader may notice that."""

  def path_to(self, name: str) -> str:
    """Returns the path of a file."""
    return f'{self.path}/{name}'


def open_dir(path: str) -> SharedDir:
  """Returns the shared directory at a local path or URL.

  A local directory is created if it does not exist.

  Raises:
    OSError: The directory cannot be created.
    InvalidArgument: The URL has an unknown scheme.
  """
  storage.make_dirs(path)
  return BucketDir(path) if storage.is_url(path) else LocalDir(path)


class LocalDir(SharedDir):
  """A shared directory on a local file system.

  The process that made a claim keeps its file locked. If another process of the
  same machine can get the lock, the first one has ended. Other machines may not
  see locks, so there a free lock has no meaning.
  """

  def __init__(self, path: str):
    super().__init__(path)
    self._host = _boot_id()
    self._lock: int | None = None

  def claim(self, epoch: int, text: str) -> bool:
    temporary = self._temporary(_claim_name(epoch), epoch)
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _FILE_MODE)
    try:
      fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
      os.write(fd, self._padded(text))
      os.fsync(fd)
      os.link(temporary, self.path_to(_claim_name(epoch)))
    except (FileExistsError, FileNotFoundError):
      os.close(fd)  # Another one has or deleted it.
      return False
    except BaseException:
      os.close(fd)
      raise
    finally:
      _unlink(temporary)
    files.sync_directory(self.path)
    self.close()
    self._lock = fd
    # Claims of earlier epochs may have been deleted meanwhile.
    return self.newest_epoch() == epoch

  def renew(self, epoch: int, text: str) -> None:
    try:
      fd = files.open_regular(self.path_to(_claim_name(epoch)), os.O_WRONLY)
    except FileNotFoundError as e:
      raise errors.Aborted(f'the claim of epoch {epoch} is gone') from e
    try:
      os.pwrite(fd, self._padded(text), 0)
    finally:
      os.close(fd)

  def take_over(self, epoch: int) -> None:
    for name in self.names():
      match = _TEMPORARY.fullmatch(name) or _CLAIM.fullmatch(name)
      if match and int(match[1]) < epoch:
        _unlink(self.path_to(name))

  def read(self, name: str) -> bytes | None:
    try:
      return storage.read_bytes(
        self.path_to(name), _MAX_BYTES, check=files.check_owner
      )
    except errors.NotFound:
      return None

  def write(self, name: str, data: bytes, epoch: int) -> None:
    temporary = self._temporary(name, epoch)
    try:
      with open(temporary, 'xb') as f:
        os.fchmod(f.fileno(), _FILE_MODE)
        f.write(data)
        f.flush()
        os.fsync(f.fileno())
      newest = self.newest_epoch()
      if newest != epoch:
        raise errors.Aborted(
          f'{name} was not written: epoch {epoch} has ended, and a server'
          f' leads in epoch {newest}'
        )
      try:
        os.rename(temporary, self.path_to(name))
      except FileNotFoundError as e:
        raise errors.Aborted(
          f'{name} was not written: epoch {epoch} has ended, and the new'
          ' leader deleted its unfinished files'
        ) from e
    except BaseException:
      _unlink(temporary)
      raise
    files.sync_directory(self.path)

  def _is_abandoned(self, name: str) -> bool:
    try:
      fd = files.open_regular(self.path_to(name))
    except FileNotFoundError:
      return False
    try:
      if self._host.encode() not in os.pread(fd, _CLAIM_BYTES, 0):
        return False
      fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
      return False
    finally:
      os.close(fd)
    return True

  def _padded(self, text: str) -> bytes:
    data = f'{text}\n{self._host}\n'.encode()
    if len(data) > _CLAIM_BYTES:
      raise ValueError(
        f'the claim has {len(data)} bytes, more than the limit of'
        f' {_CLAIM_BYTES}'
      )
    return data.ljust(_CLAIM_BYTES, b'\0')

  def _temporary(self, name: str, epoch: int) -> str:
    return self.path_to(f'.{name}.{epoch}.{secrets.token_hex(8)}.tmp')

  def close(self) -> None:
    if self._lock is not None:
      os.close(self._lock)
      self._lock = None


class BucketDir(SharedDir):
  """A shared directory in a bucket, where writes can be conditional."""

  def __init__(self, path: str):
    super().__init__(path)
    self._versions: dict[str, bytes] = {}
    # These writes have an unknown result, for example after a lost connection.
    self._unsure: dict[str, bytes] = {}

  def claim(self, epoch: int, text: str) -> bool:
    try:
      storage.write_if(
        self.path_to(_claim_name(epoch)), text.encode(), storage.ABSENT
      )
    except errors.Aborted:
      return False
    return self.newest_epoch() == epoch

  def renew(self, epoch: int, text: str) -> None:
    storage.write_bytes(self.path_to(_claim_name(epoch)), text.encode())

  def take_over(self, epoch: int) -> None:
    self._unsure.clear()
    for former in _claims(self.names()):
      if former < epoch:
        storage.delete(self.path_to(_claim_name(former)))

  def read(self, name: str) -> bytes | None:
    versioned = storage.read_versioned(self.path_to(name))
    self._versions[name] = versioned.version
    return versioned.data

  def write(self, name: str, data: bytes, epoch: int) -> None:
    if name not in self._versions:
      self.read(name)
    before = self._versions[name]
    if name in self._unsure:
      stored = storage.read_versioned(self.path_to(name))
      if stored.data == self._unsure[name]:
        before = stored.version
    self._unsure[name] = data
    try:
      version = storage.write_if(self.path_to(name), data, before)
    except errors.Aborted:
      # A write whose response was lost is retried, and the retry fails.
      if self.read(name) != data:
        del self._unsure[name]
        raise
      version = self._versions[name]
    self._versions[name] = version
    del self._unsure[name]


def _claim_name(epoch: int) -> str:
  return f'leader-{epoch:010d}'


def _claims(names: list[str]) -> list[int]:
  matches = map(_CLAIM.fullmatch, names)
  return [int(match[1]) for match in matches if match]


def _boot_id() -> str:
  """Returns an id of this machine that changes with every boot."""
  with open('/proc/sys/kernel/random/boot_id', encoding='ascii') as f:
    return f.read().strip()


def _unlink(path: str) -> None:
  pathlib.Path(path).unlink(missing_ok=True)
