"""Makes certificates for a cell that has no certificate authority.

    make_certs --dir=/etc/sax/tls --name=sax.internal
    make_certs --dir=/etc/sax/tls --name=alice@example.org

The first run makes the authority: ca.pem and its key ca.key. Each run makes a
certificate and a key: <name>.pem and <name>.key. Existing files are kept,
except with --renew. Keep ca.key off the machines of the cell: its owner can
make a certificate for any name.
"""

from collections.abc import Sequence
import os
import re

from absl import flags

from saxml_ext.common import errors
from saxml_ext.common import files
from saxml_ext.common import flag_rules
from saxml_ext.common import program
from saxml_ext.common import user_path
from saxml_ext.common.security.certs import certificates

_DIR = flags.DEFINE_string(
  'dir', None, 'The directory of the authority and of the new files.'
)
_NAMES = flags.DEFINE_list(
  'name',
  None,
  'The names in the certificate: URIs such as spiffe://example.org/gateway,'
  ' host names, IP or email addresses. The first one names the files.',
)
_DAYS = flags.DEFINE_float(
  'days', 90.0, 'The validity of the certificate, in days.', lower_bound=0
)
_CA_DAYS = flags.DEFINE_float(
  'ca_days', 3650.0, 'The validity of a new authority, in days.', lower_bound=0
)
_RENEW = flags.DEFINE_bool('renew', False, 'Replace existing files.')


def _has_authority() -> bool:
  path = user_path.resolve(_DIR.value) or ''
  return os.path.exists(os.path.join(path, 'ca.pem'))


flag_rules.act_only(
  'without a ca.pem in --dir', lambda: not _has_authority(), 'ca_days'
)

_CA_NAME = 'Sax cell CA'


def _write_both(stem: str, issued: certificates.Issued) -> str:
  # The key is written first, so that every certificate file has its key.
  with files.replacing(f'{stem}.key', 'wb', permissions=0o600) as f:
    f.write(issued.key)
  with files.replacing(f'{stem}.pem', 'wb', permissions=0o644) as f:
    f.write(issued.certificate)
  return f'{stem}.pem'


def authority(directory: str, days: float) -> certificates.Issued:
  """Returns the authority of a directory, and makes it if there is none.

  Raises:
    FailedPrecondition: The authority's key is missing.
    OSError: The files cannot be read or written.
  """
  stem = os.path.join(directory, 'ca')
  os.makedirs(directory, exist_ok=True)
  if not os.path.exists(f'{stem}.pem'):
    made = certificates.authority(_CA_NAME, days)
    _write_both(stem, made)
    return made
  if not os.path.exists(f'{stem}.key'):
    raise errors.FailedPrecondition(
      f'{stem}.pem exists without {stem}.key. Run this where the key is, or'
      ' set another --dir'
    )
  with open(f'{stem}.pem', 'rb') as cert, open(f'{stem}.key', 'rb') as key:
    return certificates.Issued(cert.read(), key.read())


def make(
  directory: str, names: Sequence[str], days: float, ca_days: float, renew: bool
) -> str:
  """Makes a certificate and its key.

  Args:
    directory: The directory of the authority.
    names: The names in the certificate; see `certificates.issue`.
    days: The number of days for which the certificate is valid.
    ca_days: The number of days for which a new authority is valid.
    renew: True to replace existing files.

  Returns:
    The certificate's path.

  Raises:
    AlreadyExists: The files exist.
    InvalidArgument: A certificate cannot have such a name.
    FailedPrecondition, OSError: `authority` failed.
  """
  stem = re.sub(r'[^A-Za-z0-9.@_-]+', '_', names[0]).lstrip('.')
  if stem in ('', 'ca'):
    raise errors.InvalidArgument(
      f'{names[0]!r} cannot name a file beside ca.pem. Put another name first'
    )
  path = os.path.join(directory, stem)
  if os.path.exists(f'{path}.pem') and not renew:
    raise errors.AlreadyExists(
      f'{path}.pem already exists. Set --renew to replace it'
    )
  issued = certificates.issue(authority(directory, ca_days), names, days)
  return _write_both(path, issued)


def main(argv: Sequence[str]) -> None:
  """Makes the files that the flags describe, or exits with 1."""
  del argv
  with program.exit_on('make_certs', (errors.SaxError, OSError)):
    path = make(
      user_path.resolve(_DIR.value),
      _NAMES.value,
      _DAYS.value,
      _CA_DAYS.value,
      _RENEW.value,
    )
  print(f'made {path} and its key')


if __name__ == '__main__':
  flags.mark_flags_as_required(['dir', 'name'])
  program.run(main)
