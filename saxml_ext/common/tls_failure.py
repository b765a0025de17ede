"""What to do about a connection that TLS did not let come about.

gRPC tells it in words of the library below it, as a detail of UNAVAILABLE.
"""

_NOT_REACHED = 'failed to connect to all addresses'
# Part of gRPC's text -> what it means and what to do.
_MEANINGS = (
  (
    'certificate has expired',
    'the certificate of the server there has expired: replace its'
    ' --tls_cert_file (no restart is needed)',
  ),
  (
    'certificate is not yet valid',
    'the certificate of the server there is not valid yet: compare the clocks'
    ' of the two machines',
  ),
  (
    'Hostname Verification Check failed',
    'the certificate of the server there is for another name: give'
    ' --tls_server_name=<a name that it carries>, or another certificate to the'
    ' server',
  ),
  (
    'WRONG_VERSION_NUMBER',
    'the server there speaks plain text: start it with --tls_cert_file and'
    ' --tls_key_file, or leave the TLS flags of this program out',
  ),
  (
    'CERTIFICATE_VERIFY_FAILED',
    'the certificate of the server there is not from an authority that'
    ' --tls_ca_file names: give the CA that signed it',
  ),
)
_HUNG_UP = (
  'the server there hung up before it answered: if it speaks TLS, give'
  ' --tls_ca_file; if it wants certificates of its clients, --tls_cert_file and'
  ' --tls_key_file of one of its CA that has not expired'
)


def explain(details: str) -> str:
  """What a failed connection means.

  Args:
    details: text of a call's status UNAVAILABLE.

  Returns:
    A sentence for the user; '' if it has nothing to do with TLS.
  """
  if _NOT_REACHED not in details:
    return ''
  if is_hung_up(details):
    return _HUNG_UP
  return _meaning(details)


def is_hung_up(details: str) -> bool:
  """Whether the server took the connection and ended it at once."""
  return _NOT_REACHED in details and 'Socket closed' in details


def is_certain(details: str) -> bool:
  """Whether a connection failed for a reason that waiting does not mend."""
  return _NOT_REACHED in details and bool(_meaning(details))


def _meaning(details: str) -> str:
  for part, meaning in _MEANINGS:
    if part in details:
      return meaning
  return ''
