"""Makes an authority and its certificates for each test."""

import os

from saxml_ext.common import files
from saxml_ext.common.security import tls
from saxml_ext.common.security.certs import certificates

# The certificates of a cell's servers have this name.
SERVER_NAME = 'cell.test'


class CellCerts:
  """Makes files of certificates in a directory.

  Attributes:
    ca_file: The certificate file of the authority.
  """

  def __init__(self, directory: str):
    self._directory = directory
    self._authority = certificates.authority('test', days=1)
    os.makedirs(directory, exist_ok=True)
    self.ca_file = os.path.join(directory, 'ca.pem')
    self._write('ca.pem', self._authority.certificate)

  def make(self, stem: str, *names: str, days: float = 1) -> tls.Settings:
    """Writes <stem>.pem and <stem>.key, and replaces existing files.

    Args:
      stem: The file names without their suffixes.
      *names: The names in the certificate; by default, the stem.
      days: The number of days for which it is valid.

    Returns:
      The settings of a process that has this certificate.
    """
    issued = certificates.issue(self._authority, names or (stem,), days)
    self._write(f'{stem}.key', issued.key)
    self._write(f'{stem}.pem', issued.certificate)
    path = os.path.join(self._directory, stem)
    return tls.Settings(f'{path}.pem', f'{path}.key', self.ca_file, SERVER_NAME)

  def server(self) -> tls.Settings:
    """Makes a certificate for a server of the cell."""
    return self.make('server', SERVER_NAME, 'spiffe://test/server')

  def _write(self, name: str, data: bytes) -> None:
    path = os.path.join(self._directory, name)
    with files.replacing(path, 'wb') as f:
      f.write(data)
