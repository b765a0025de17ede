"""TLS for all gRPC of a process: one setting, taken up where sockets are made.

Nobody who makes a channel or binds a server has to know of it: `grpc_util` and
`grpc_aio` ask here. The setting is that of flags (`tls_flags`), of `configure`,
or of the environment; without any of them all connections are plain text.

Certificates are short-lived in a cell that is run well. A server takes up files
that were replaced at the next connection, and connections that are open go on;
a client takes them up in its next channel.
"""

from collections.abc import Callable, Mapping
import dataclasses
import os
import time
from typing import NamedTuple

import grpc

from saxml_ext.common import errors
from saxml_ext.common.security import key_files

CERT_VARIABLE = 'SAX_TLS_CERT_FILE'
KEY_VARIABLE = 'SAX_TLS_KEY_FILE'
CA_VARIABLE = 'SAX_TLS_CA_FILE'
NAME_VARIABLE = 'SAX_TLS_SERVER_NAME'
REQUIRE_VARIABLE = 'SAX_TLS_REQUIRE_CLIENT_CERTS'
_BOOLEANS = {'': True, '1': True, 'true': True, '0': False, 'false': False}


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
  used: list[key_files.Content] = [found.read()]

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
  `key_files.LOOK_SECS`.

  Raises:
    InvalidArgument: as `channel_credentials`.
  """
  global _seen
  now = time.monotonic()
  if _seen is None or _seen.configured is not _configured or now > _seen.until:
    settings = current()
    content = files(settings).newest() if settings.is_set else None
    _seen = _Seen(_configured, now + key_files.LOOK_SECS, content)
  return _seen.content


class _Seen(NamedTuple):
  """What `version` saw, and until when it need not look again."""

  configured: Settings | None
  until: float
  content: key_files.Content | None


_seen: _Seen | None = None
_by_settings: dict[Settings, key_files.KeyFiles] = {}
_by_content: dict[
  Settings, tuple[key_files.Content, grpc.ChannelCredentials]
] = {}


def files(settings: Settings) -> key_files.KeyFiles:
  """Those of some settings, read once for the whole process."""
  if settings not in _by_settings:
    _by_settings[settings] = key_files.KeyFiles(
      settings.cert_file, settings.key_file, settings.ca_file
    )
  return _by_settings[settings]
