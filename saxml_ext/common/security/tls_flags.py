"""Defines the TLS flags for programs that import this module."""

import os

from absl import flags

from saxml_ext.common import flag_rules
from saxml_ext.common import user_path
from saxml_ext.common.security import tls

_CERT_FILE = flags.DEFINE_string(
  'tls_cert_file',
  None,
  "The PEM file of this process's certificate, for its ports and for the"
  f' servers that it calls. Default: ${tls.CERT_VARIABLE}.',
)
_KEY_FILE = flags.DEFINE_string(
  'tls_key_file',
  None,
  f"The PEM file of the certificate's key. Default: ${tls.KEY_VARIABLE}.",
)
_CA_FILE = flags.DEFINE_string(
  'tls_ca_file',
  None,
  'The PEM file of the trusted authorities, for the certificates of servers'
  f' and clients. Clients must then have one. Default: ${tls.CA_VARIABLE}.',
)
_SERVER_NAME = flags.DEFINE_string(
  'tls_server_name',
  None,
  f'The name in the certificates of servers. Default: ${tls.NAME_VARIABLE},'
  ' or else the host in the address.',
)
_REQUIRE = flags.DEFINE_bool(
  'tls_require_client_certs',
  None,
  'Require a client certificate if --tls_ca_file is set. Default:'
  f' ${tls.REQUIRE_VARIABLE}, or else true.',
)


def ca_file() -> str:
  """Returns the file of trusted authorities, or '' if there is none."""
  return _or(_CA_FILE.value, os.environ.get(tls.CA_VARIABLE, ''))


flag_rules.act_only('with --tls_ca_file', ca_file, 'tls_require_client_certs')


def settings() -> tls.Settings:
  """Returns the settings of the flags, completed by the environment."""
  inherited = tls.from_environment()
  required = inherited.require_client_certs
  if _REQUIRE.value is not None:
    required = _REQUIRE.value
  return tls.Settings(
    user_path.resolve(_or(_CERT_FILE.value, inherited.cert_file)),
    user_path.resolve(_or(_KEY_FILE.value, inherited.key_file)),
    user_path.resolve(ca_file()),
    _or(_SERVER_NAME.value, inherited.server_name),
    required,
  )


def export() -> None:
  """Passes the settings to child processes through the environment.

  Raises:
    InvalidArgument: The settings are incomplete.
  """
  current = settings()
  current.check()
  if current != tls.from_environment():
    os.environ.update(
      {
        tls.CERT_VARIABLE: current.cert_file,
        tls.KEY_VARIABLE: current.key_file,
        tls.CA_VARIABLE: current.ca_file,
        tls.NAME_VARIABLE: current.server_name,
        tls.REQUIRE_VARIABLE: str(current.require_client_certs).lower(),
      }
    )


def _or(flag: str | None, default: str) -> str:
  return default if flag is None else flag


def _source() -> tls.Settings:
  # A test may use the program's modules without parsed flags.
  if flags.FLAGS.is_parsed():
    return settings()
  return tls.from_environment()


tls.take_from(_source)
