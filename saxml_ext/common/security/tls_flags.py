"""Defines the TLS flags for programs that import this module."""

import os

from absl import flags

from saxml_ext.common import flag_rules
from saxml_ext.common import user_path
from saxml_ext.common.security import tls

_CERT_FILE = flags.DEFINE_string(
  'tls_cert_file',
  None,
  "PEM file of this process's certificate: its ports speak TLS, and it shows it"
  f' to the servers it calls. Default: ${tls.CERT_VARIABLE}.',
)
_KEY_FILE = flags.DEFINE_string(
  'tls_key_file',
  None,
  f"PEM file of the certificate's private key. Default: ${tls.KEY_VARIABLE}.",
)
_CA_FILE = flags.DEFINE_string(
  'tls_ca_file',
  None,
  'PEM file of the authorities whose certificates are trusted: of servers, and'
  f' of clients, which have to show one. Default: ${tls.CA_VARIABLE}.',
)
_SERVER_NAME = flags.DEFINE_string(
  'tls_server_name',
  None,
  'A name that the certificates of servers carry. Default:'
  f' ${tls.NAME_VARIABLE}, else the host that is connected to.',
)
_REQUIRE = flags.DEFINE_bool(
  'tls_require_client_certs',
  None,
  'Whether clients have to show a certificate, if --tls_ca_file is given.'
  f' Default: ${tls.REQUIRE_VARIABLE}, else true.',
)


def ca_file() -> str:
  """Returns the file of trusted authorities, or '' if there is none."""
  return _or(_CA_FILE.value, os.environ.get(tls.CA_VARIABLE, ''))


flag_rules.act_only('with --tls_ca_file', ca_file, 'tls_require_client_certs')


def settings() -> tls.Settings:
  """Returns the settings of the flags, completed by the environment."""
  told = tls.from_environment()
  required = told.require_client_certs
  if _REQUIRE.value is not None:
    required = _REQUIRE.value
  return tls.Settings(
    user_path.resolve(_or(_CERT_FILE.value, told.cert_file)),
    user_path.resolve(_or(_KEY_FILE.value, told.key_file)),
    user_path.resolve(ca_file()),
    _or(_SERVER_NAME.value, told.server_name),
    required,
  )


def export() -> None:
  """Passes the settings to child processes through the environment.

  Raises:
    InvalidArgument: The settings are incomplete.
  """
  told = settings()
  told.check()
  if told != tls.from_environment():
    os.environ.update(
      {
        tls.CERT_VARIABLE: told.cert_file,
        tls.KEY_VARIABLE: told.key_file,
        tls.CA_VARIABLE: told.ca_file,
        tls.NAME_VARIABLE: told.server_name,
        tls.REQUIRE_VARIABLE: str(told.require_client_certs).lower(),
      }
    )


def _or(given: str | None, told: str) -> str:
  return told if given is None else given


def _source() -> tls.Settings:
  # A test may use the program's modules without parsed flags.
  if flags.FLAGS.is_parsed():
    return settings()
  return tls.from_environment()


tls.take_from(_source)
