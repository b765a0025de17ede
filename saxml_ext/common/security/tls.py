"""TLS settings for all gRPC channels and servers of a process.

`grpc_util` and `grpc_aio` read the setting when they make a channel or bind a
server, so their callers need no TLS code. The setting comes from flags
(`tls_flags`), from `configure` or from the environment. Without any of them,
all connections are plain text.

Certificates of a well-run cell expire soon and are replaced often. A server
uses replaced files for new connections, and keeps open ones. A client uses them
for its next channel.
"""

from collections.abc import Callable, Iterator, Mapping
import contextlib
import dataclasses
import logging
import os
import threading
import time
from typing import NamedTuple

import grpc

from saxml_ext.common import errors
from saxml_ext.common import files as files_lib

CERT_VARIABLE = 'SAX_TLS_CERT_FILE'
KEY_VARIABLE = 'SAX_TLS_KEY_FILE'
CA_VARIABLE = 'SAX_TLS_CA_FILE'
NAME_VARIABLE = 'SAX_TLS_SERVER_NAME'
REQUIRE_VARIABLE = 'SAX_TLS_REQUIRE_CLIENT_CERTS'
_BOOLEANS = {'': True, '1': True, 'true': True, '0': False, 'false': False}
# This is not absl's logger, because clients use this module too; see
# `grpc_util`.
_logger = logging.getLogger(__name__)

# The number of seconds between checks for changed files. A client calls this
# module before every request.
LOOK_SECS = 1.0
_MAX_BYTES = 2**20
_Stamp = tuple[tuple[int, int, int], ...]


@dataclasses.dataclass(frozen=True)
class Settings:
  """The certificate of a process, and the authorities that it trusts.

  Attributes:
    cert_file: The PEM file of this process's certificate, followed by
      intermediate ones. A server must have one, and a client may.
    key_file: The PEM file of its private key.
    ca_file: The PEM file of the authorities. A client trusts servers with a
      certificate of one of them; by default, of those that gRPC ships. A server
      requires such a certificate from every client.
    server_name: The name that the certificates of servers must have; by
      default, the host of the address. A cell's addresses are IP addresses and
      ports, which few certificates contain.
    require_client_certs: True if a server with a `ca_file` requires
      certificates of clients.
  """

  cert_file: str = ''
  key_file: str = ''
  ca_file: str = ''
  server_name: str = ''
  require_client_certs: bool = True

  @property
  def is_set(self) -> bool:
    """True if connections are encrypted."""
    return bool(self.cert_file or self.key_file or self.ca_file)

  def check(self) -> None:
    """Raises InvalidArgument if the settings are incomplete."""
    for have, want, given, missing in (
      (self.cert_file, self.key_file, 'cert', 'key'),
      (self.key_file, self.cert_file, 'key', 'cert'),
    ):
      if have and not want:
        raise errors.InvalidArgument(
          f'--tls_{given}_file={have} needs --tls_{missing}_file. Set both,'
          f' or neither (or the variables {CERT_VARIABLE} and {KEY_VARIABLE})'
        )
    if self.server_name and not self.is_set:
      raise errors.InvalidArgument(
        f'--tls_server_name={self.server_name} is the only TLS setting. Set'
        f' --tls_ca_file or {CA_VARIABLE} too'
      )


@dataclasses.dataclass(frozen=True, eq=False)
class Content:
  """The contents of the files in PEM format; None for missing settings."""

  certificate: bytes | None
  key: bytes | None = dataclasses.field(repr=False)
  authorities: bytes | None


class KeyFiles:
  """Reads and checks the files, and again when they change. Thread-safe."""

  def __init__(self, cert_file: str, key_file: str, ca_file: str):
    """Reads nothing yet.

    Args:
      cert_file: The path of the certificate; '' for none.
      key_file: The path of its private key; '' for none.
      ca_file: The path of the authorities; '' for none.
    """
    self._cert_file = cert_file
    self._key_file = key_file
    self._ca_file = ca_file
    self._lock = threading.Lock()
    self._content: Content | None = None
    self._stamp: _Stamp = ()
    self._looked = 0.0

  def read(self) -> Content:
    """Reads the files now.

    Raises:
      InvalidArgument: A file cannot be read, is malformed or has expired, or
        the files do not belong together.
    """
    with self._lock:
      # The stamps are taken before the read, so that a change during the read
      # is noticed next time.
      stamp = self._stamps()
      content = self._read()
      # Callers compare contents by identity, so equal contents stay the same
      # object.
      if self._content is None or (
        dataclasses.astuple(self._content) != dataclasses.astuple(content)
      ):
        self._content = content
      self._stamp, self._looked = stamp, time.monotonic()
      return self._content

  def newest(self) -> Content:
    """Returns the newest valid contents.

    Raises:
      InvalidArgument: No read has succeeded yet; see `read`.
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
      # Perhaps only one of the two files has been replaced so far.
      _logger.error('TLS continues with the old files: %s', e.message)
    return content

  def _stamps(self) -> _Stamp:
    stamps = []
    for path in filter(None, (self._cert_file, self._key_file, self._ca_file)):
      with _readable(path):
        info = os.stat(path)
      stamps.append((info.st_mtime_ns, info.st_size, info.st_ino))
    return tuple(stamps)

  def _read(self) -> Content:
    # The module is imported late, so that only processes with TLS wait for it.
    from saxml_ext.common.security.certs import certificates

    certificate = key = authorities = None
    if self._cert_file:
      certificate, key = _bytes(self._cert_file), _bytes(self._key_file)
      own = certificates.load(certificate, self._cert_file)[0]
      certificates.check_valid(own, self._cert_file)
      certificates.check_key(key, own, self._key_file)
    if self._ca_file:
      authorities = _bytes(self._ca_file)
      certificates.load(authorities, self._ca_file)
    return Content(certificate, key, authorities)


@contextlib.contextmanager
def _readable(path: str) -> Iterator[None]:
  try:
    yield
  except OSError as e:
    raise errors.InvalidArgument(
      f"{path} cannot be read ({e.strerror}). Correct the flag or the file's"
      ' permissions'
    ) from e


def _bytes(path: str) -> bytes:
  # Whoever can write a key or the authorities decides who is verified.
  with _readable(path):
    return files_lib.read_file(path, _MAX_BYTES, check=files_lib.check_private)


_configured: Settings | None = None
_source: Callable[[], Settings] | None = None


def from_environment(environ: Mapping[str, str] = os.environ) -> Settings:
  """Returns the settings in the environment.

  Raises:
    InvalidArgument: A variable that must be a boolean is not one.
  """
  required = environ.get(REQUIRE_VARIABLE, '').lower()
  if required not in _BOOLEANS:
    raise errors.InvalidArgument(
      f'the environment variable {REQUIRE_VARIABLE}="{required}" is neither'
      ' true nor false. Set it to one of them'
    )
  return Settings(
    environ.get(CERT_VARIABLE, ''),
    environ.get(KEY_VARIABLE, ''),
    environ.get(CA_VARIABLE, ''),
    environ.get(NAME_VARIABLE, ''),
    _BOOLEANS[required],
  )


def configure(settings: Settings | None) -> None:
  """Sets the TLS settings for new channels and servers of this process.

  None restores the settings of the flags or of the environment.
  """
  global _configured
  _configured = settings


def take_from(source: Callable[[], Settings]) -> None:
  """Sets the function that returns the settings if `configure` set none."""
  global _source
  _source = source


def current() -> Settings:
  """Returns the settings of this process.

  Raises:
    InvalidArgument: The settings are incomplete.
  """
  settings = _configured
  if settings is None:
    settings = _source() if _source else from_environment()
  settings.check()
  return settings


def server_credentials() -> grpc.ServerCredentials | None:
  """Returns credentials for a server's port, or None for plain text.

  Raises:
    InvalidArgument: A file cannot be used; the message gives the reason.
  """
  settings = current()
  if not settings.is_set:
    return None
  if not settings.cert_file:
    raise errors.InvalidArgument(
      f'--tls_ca_file={settings.ca_file} is set, but a server also needs its'
      ' own certificate. Set --tls_cert_file and --tls_key_file (or the'
      f' variables {CERT_VARIABLE} and {KEY_VARIABLE})'
    )
  key_files = files(settings)
  required = bool(settings.ca_file) and settings.require_client_certs
  used: list[Content] = [key_files.read()]

  def configuration() -> grpc.ServerCertificateConfiguration:
    content = used[0]
    return grpc.ssl_server_certificate_configuration(
      [(content.key, content.certificate)],
      root_certificates=content.authorities if required else None,
    )

  def fetch() -> grpc.ServerCertificateConfiguration | None:
    content = key_files.newest()
    if content is used[0]:
      return None
    used[0] = content
    return configuration()

  return grpc.dynamic_ssl_server_credentials(
    configuration(), fetch, require_client_authentication=required
  )


def channel_credentials() -> grpc.ChannelCredentials | None:
  """Returns credentials for a client's channel, or None for plain text.

  Raises:
    InvalidArgument: A file cannot be used; the message gives the reason.
  """
  settings = current()
  if not settings.is_set:
    return None
  content = files(settings).newest()
  made = _by_content.get(settings)
  # The credentials stay the same object until the files change, because
  # channels to one address share their connection only if their credentials are
  # identical.
  if made is None or made[0] is not content:
    made = (
      content,
      grpc.ssl_channel_credentials(
        content.authorities, content.key, content.certificate
      ),
    )
    _by_content[settings] = made
  return made[1]


def channel_options() -> tuple[tuple[str, str], ...]:
  """Returns the options of a channel with such credentials."""
  name = current().server_name
  return (('grpc.ssl_target_name_override', name),) if name else ()


def version() -> object:
  """Returns an object that changes when files are replaced.

  A new channel then uses the new files. The call is cheap enough for every
  request, because it checks the files only once per `LOOK_SECS`.

  Raises:
    InvalidArgument: A file cannot be used; see `channel_credentials`.
  """
  global _seen
  now = time.monotonic()
  if _seen is None or _seen.configured is not _configured or now > _seen.until:
    settings = current()
    content = files(settings).newest() if settings.is_set else None
    _seen = _Seen(_configured, now + LOOK_SECS, content)
  return _seen.content


class _Seen(NamedTuple):
  """The last result of `version`, and the time until which it is valid."""

  configured: Settings | None
  until: float
  content: Content | None


_seen: _Seen | None = None
_by_settings: dict[Settings, KeyFiles] = {}
_by_content: dict[Settings, tuple[Content, grpc.ChannelCredentials]] = {}


def files(settings: Settings) -> KeyFiles:
  """Returns the files of some settings, which the process reads once."""
  if settings not in _by_settings:
    _by_settings[settings] = KeyFiles(
      settings.cert_file, settings.key_file, settings.ca_file
    )
  return _by_settings[settings]
