"""The files of a certificate, its key and the authorities, as they are now."""

import dataclasses
import logging
import os
import threading
import time

from saxml_ext.common import errors

# Not absl's: clients read these files too, see `grpc_util`.
_logger = logging.getLogger(__name__)

# Files are looked at no more often than this, in seconds: a client asks before
# every request.
LOOK_SECS = 1.0
_Stamp = tuple[tuple[int, int, int], ...]


@dataclasses.dataclass(frozen=True, eq=False)
class Content:
  """What is in the files, PEM; None of those that are not given."""

  certificate: bytes | None
  key: bytes | None = dataclasses.field(repr=False)
  authorities: bytes | None


class KeyFiles:
  """Reads and checks the files, again when they change. Thread-safe."""

  def __init__(self, cert_file: str, key_file: str, ca_file: str):
    """Takes their paths, '' for none; reads them when asked."""
    self._cert_file = cert_file
    self._key_file = key_file
    self._ca_file = ca_file
    self._lock = threading.Lock()
    self._content: Content | None = None
    self._stamp: _Stamp = ()
    self._looked = 0.0

  def read(self) -> Content:
    """Reads them now.

    Raises:
      InvalidArgument: one cannot be read, is malformed or has expired, or they
        do not belong together.
    """
    with self._lock:
      # Before they are read: what changes meanwhile is noticed next time.
      stamp = self._stamps()
      content = self._read()
      # A connection shows the same content until another one is there.
      if self._content is None or _differ(self._content, content):
        self._content = content
      self._stamp, self._looked = stamp, time.monotonic()
      return self._content

  def newest(self) -> Content:
    """The last content that could be used.

    Raises:
      InvalidArgument: as `read`, if that never worked.
    """
    content = self._content
    if content is None:
      return self.read()
    if time.monotonic() < self._looked + LOOK_SECS:
      return content
    try:
      self._looked = time.monotonic()
      if self._stamps() != self._stamp:
        content = self.read()
        _logger.info('read %s again', self._cert_file or self._ca_file)
    except errors.InvalidArgument as e:
      # Perhaps only one of two files has been replaced so far.
      _logger.error('TLS goes on with the files as they were: %s', e.message)
    return content

  def _paths(self) -> list[str]:
    return [p for p in (self._cert_file, self._key_file, self._ca_file) if p]

  def _stamps(self) -> _Stamp:
    stamps = []
    for path in self._paths():
      try:
        found = os.stat(path)
      except OSError as e:
        raise errors.InvalidArgument(
          f'{path} cannot be read ({e.strerror}): correct the flag or the'
          " file's permissions"
        ) from e
      stamps.append((found.st_mtime_ns, found.st_size, found.st_ino))
    return tuple(stamps)

  def _read(self) -> Content:
    # Only who uses TLS waits for this to be imported.
    from saxml_ext.common.security.certs import certificates

    certificate = key = authorities = None
    if self._cert_file:
      certificate, key = _bytes(self._cert_file), _bytes(self._key_file)
      certificates.summarize(certificate, self._cert_file).check_valid(
        self._cert_file
      )
      certificates.check_pair(certificate, key, self._key_file)
    if self._ca_file:
      authorities = _bytes(self._ca_file)
      certificates.check_authorities(authorities, self._ca_file)
    return Content(certificate, key, authorities)


def _differ(one: Content, other: Content) -> bool:
  return dataclasses.astuple(one) != dataclasses.astuple(other)


def _bytes(path: str) -> bytes:
  try:
    with open(path, 'rb') as f:
      return f.read()
  except OSError as e:
    raise errors.InvalidArgument(
      f"{path} cannot be read ({e.strerror}): correct the flag or the file's"
      ' permissions'
    ) from e
