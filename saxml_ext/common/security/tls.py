"""TLS for all gRPC of a process: one setting, taken up where sockets are made.

Nobody who makes a channel or binds a server has to know of it: `grpc_util` and
`grpc_aio` ask here. The setting is that of flags (`tls_flags`), of `configure`,
or of the environment; without any of them all connections are plain text.

Certificates are short-lived in a cell that is run well. A server takes up files
that were replaced at the next connection, and connections that are open go on;
a client takes them up in its next channel.
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

CERT_VARIABLE = 'SAX_TLS_CERT_FILE'
KEY_VARIABLE = 'SAX_TLS_KEY_FILE'
CA_VARIABLE = 'SAX_TLS_CA_FILE'
NAME_VARIABLE = 'SAX_TLS_SERVER_NAME'
REQUIRE_VARIABLE = 'SAX_TLS_REQUIRE_CLIENT_CERTS'
_BOOLEANS = {'': True, '1': True, 'true': True, '0': False, 'false': False}
# Not absl's: clients read these files too, see `grpc_util`.
_logger = logging.getLogger(__name__)

# Files are looked at no more often than this, in seconds: a client asks before
# every request.
LOOK_SECS = 1.0
_Stamp = tuple[tuple[int, int, int], ...]


@dataclasses.dataclass(frozen=True)
class Settings:
  """What a process shows, and whom it trusts.

  Attributes:
    cert_file: PEM file of this process's certificate, intermediate ones after
      it. A server must have one, a client may.
    key_file: PEM file of its private key.
    ca_file: PEM file of the authorities. A client trusts servers that have a
      certificate of one of them; without it, of those that gRPC ships. A server
      wants such a certificate of every client.
    server_name: a name that the certificates of servers have to carry; '': the
      host that is connected to. A cell's addresses are IP addresses and ports,
      which few certificates carry.
    require_client_certs: whether a server with a `ca_file` wants certificates.
  """

  cert_file: str = ''
  key_file: str = ''
  ca_file: str = ''
  server_name: str = ''
  require_client_certs: bool = True

  @property
  def is_set(self) -> bool:
    """Whether connections are encrypted."""
    return bool(self.cert_file or self.key_file or self.ca_file)

  def check(self) -> None:
    """Raises InvalidArgument if only a part of it is set."""
    for have, want, given, missing in (
      (self.cert_file, self.key_file, 'cert', 'key'),
      (self.key_file, self.cert_file, 'key', 'cert'),
    ):
      if have and not want:
        raise errors.InvalidArgument(
          f'--tls_{given}_file={have} is given without --tls_{missing}_file:'
          f' give both, or neither (or the variables {CERT_VARIABLE} and'
          f' {KEY_VARIABLE})'
        )
    if self.server_name and not self.is_set:
      raise errors.InvalidArgument(
        f'--tls_server_name={self.server_name} is given, but nothing else of'
        f' TLS: give --tls_ca_file, or set {CA_VARIABLE}'
      )


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
      if self._content is None or (
        dataclasses.astuple(self._content) != dataclasses.astuple(content)
      ):
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

  def _stamps(self) -> _Stamp:
    stamps = []
    for path in filter(None, (self._cert_file, self._key_file, self._ca_file)):
      with _readable(path):
        found = os.stat(path)
      stamps.append((found.st_mtime_ns, found.st_size, found.st_ino))
    return tuple(stamps)

  def _read(self) -> Content:
    # Only who uses TLS waits for this to be imported.
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
      f"{path} cannot be read ({e.strerror}): correct the flag or the file's"
      ' permissions'
    ) from e


def _bytes(path: str) -> bytes:
  with _readable(path), open(path, 'rb') as f:
    return f.read()


_configured: Settings | None = None
_source: Callable[[], Settings] | None = None


def from_environment(environ: Mapping[str, str] = os.environ) -> Settings:
  """What the environment says; raises InvalidArgument if it is no boolean."""
  required = environ.get(REQUIRE_VARIABLE, '').lower()
  if required not in _BOOLEANS:
    raise errors.InvalidArgument(
      f'the environment variable {REQUIRE_VARIABLE}="{required}" is neither'
      ' true nor false: set it to one of them'
    )
  return Settings(
    environ.get(CERT_VARIABLE, ''),
    environ.get(KEY_VARIABLE, ''),
    environ.get(CA_VARIABLE, ''),
    environ.get(NAME_VARIABLE, ''),
    _BOOLEANS[required],
  )


def configure(settings: Settings | None) -> None:
  """Sets TLS up for what this process opens from now on; None: not here."""
  global _configured
  _configured = settings


def take_from(source: Callable[[], Settings]) -> None:
  """Names what is asked for the settings when nothing was configured."""
  global _source
  _source = source


def current() -> Settings:
  """The settings of this process.

  Raises:
    InvalidArgument: only a part is set.
  """
  settings = _configured
  if settings is None:
    settings = _source() if _source else from_environment()
  settings.check()
  return settings


def server_credentials() -> grpc.ServerCredentials | None:
  """Credentials for a server's port; None: plain text.

  Raises:
    InvalidArgument: a file cannot be used; the message says why.
  """
  settings = current()
  if not settings.is_set:
    return None
  if not settings.cert_file:
    raise errors.InvalidArgument(
      f'--tls_ca_file={settings.ca_file} is given, but a server needs a'
      ' certificate of its own: give --tls_cert_file and --tls_key_file (or the'
      f' variables {CERT_VARIABLE} and {KEY_VARIABLE})'
    )
  found = files(settings)
  required = bool(settings.ca_file) and settings.require_client_certs
  used: list[Content] = [found.read()]

  def configuration() -> grpc.ServerCertificateConfiguration:
    content = used[0]
    return grpc.ssl_server_certificate_configuration(
      [(content.key, content.certificate)],
      root_certificates=content.authorities if required else None,
    )

  def fetch() -> grpc.ServerCertificateConfiguration | None:
    content = found.newest()
    if content is used[0]:
      return None
    used[0] = content
    return configuration()

  return grpc.dynamic_ssl_server_credentials(
    configuration(), fetch, require_client_authentication=required
  )


def channel_credentials() -> grpc.ChannelCredentials | None:
  """Credentials for a client's channel; None: plain text.

  Raises:
    InvalidArgument: a file cannot be used; the message says why.
  """
  settings = current()
  if not settings.is_set:
    return None
  content = files(settings).newest()
  made = _by_content.get(settings)
  # The same object as long as nothing changes: channels to one address share
  # their connection only then.
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
  """Options of a channel that has such credentials."""
  name = current().server_name
  return (('grpc.ssl_target_name_override', name),) if name else ()


def version() -> object:
  """Differs once files were replaced: then a new channel shows the new ones.

  Cheap enough to be asked before every request: it looks no more often than
  `LOOK_SECS`.

  Raises:
    InvalidArgument: as `channel_credentials`.
  """
  global _seen
  now = time.monotonic()
  if _seen is None or _seen.configured is not _configured or now > _seen.until:
    settings = current()
    content = files(settings).newest() if settings.is_set else None
    _seen = _Seen(_configured, now + LOOK_SECS, content)
  return _seen.content


class _Seen(NamedTuple):
  """What `version` saw, and until when it need not look again."""

  configured: Settings | None
  until: float
  content: Content | None


_seen: _Seen | None = None
_by_settings: dict[Settings, KeyFiles] = {}
_by_content: dict[Settings, tuple[Content, grpc.ChannelCredentials]] = {}


def files(settings: Settings) -> KeyFiles:
  """Those of some settings, read once for the whole process."""
  if settings not in _by_settings:
    _by_settings[settings] = KeyFiles(
      settings.cert_file, settings.key_file, settings.ca_file
    )
  return _by_settings[settings]
