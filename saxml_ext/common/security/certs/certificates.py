"""X.509 certificates: what one says, and how a private authority makes them.

A cell that has no certificate authority of its own gets one by `authority`;
`make_certs` is the program for it. Keys are of the curve P-256, which every
TLS stack takes and which costs a handshake less than RSA.
"""

from collections.abc import Sequence
import dataclasses
import datetime
import ipaddress

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from saxml_ext.common import errors

# Clocks of a cell's machines may differ by so much.
_CLOCK_SKEW = datetime.timedelta(hours=1)


@dataclasses.dataclass(frozen=True)
class Issued:
  """A certificate with its private key, both in PEM."""

  certificate: bytes
  key: bytes = dataclasses.field(repr=False)


def load(pem: bytes, what: str) -> list[x509.Certificate]:
  """Parses the certificates of a PEM file.

  Args:
    pem: The content of the file.
    what: The name of the file, for messages.

  Raises:
    InvalidArgument: There is no certificate in it.
  """
  try:
    return x509.load_pem_x509_certificates(pem)
  except ValueError as e:
    raise errors.InvalidArgument(
      f'{what} has no certificate in PEM form in it: one is between the lines'
      ' BEGIN CERTIFICATE and END CERTIFICATE'
    ) from e


def check_valid(certificate: x509.Certificate, what: str) -> None:
  """Raises InvalidArgument if a certificate is not valid now.

  Args:
    certificate: The certificate to check.
    what: The name of its file, for messages.
  """
  now = datetime.datetime.now(datetime.UTC)
  names = ', '.join(names_of(certificate)) or 'nobody'
  begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
  if now > end:
    raise errors.InvalidArgument(
      f'{what}: the certificate of {names} has expired at'
      f' {end:%Y-%m-%d %H:%M:%S} UTC: replace it by a newer one'
    )
  if now < begin:
    raise errors.InvalidArgument(
      f'{what}: the certificate of {names} is valid only from'
      f" {begin:%Y-%m-%d %H:%M:%S} UTC on: set this machine's clock, or wait"
    )


def check_key(key: bytes, certificate: x509.Certificate, what: str) -> None:
  """Checks that a private key in PEM form is that of a certificate.

  Args:
    key: The content of the key's file.
    certificate: The certificate that the key must belong to.
    what: The name of the key's file, for messages.

  Raises:
    InvalidArgument: The key is another one's, has a password, or is no key.
  """
  try:
    private = serialization.load_pem_private_key(key, password=None)
  except (ValueError, TypeError) as e:
    raise errors.InvalidArgument(
      f'{what} is no private key in PEM form without a password: give the'
      " certificate's own key"
    ) from e
  if private.public_key() != certificate.public_key():
    raise errors.InvalidArgument(
      f'{what} is the private key of another certificate: give the one that'
      ' the certificate was made with'
    )


def names_of(certificate: x509.Certificate) -> tuple[str, ...]:
  """Returns the names that a certificate was issued to.

  They are its subject alternative names: URIs first, then DNS names and email
  addresses. A certificate without any has its common name.
  """
  try:
    alternative = certificate.extensions.get_extension_for_class(
      x509.SubjectAlternativeName
    ).value
  except x509.ExtensionNotFound:
    alternative = x509.SubjectAlternativeName([])
  kinds = (x509.UniformResourceIdentifier, x509.DNSName, x509.RFC822Name)
  names = [n for kind in kinds for n in alternative.get_values_for_type(kind)]
  if not names:
    common = certificate.subject.get_attributes_for_oid(
      x509.NameOID.COMMON_NAME
    )
    names = [str(item.value) for item in common]
  return tuple(names)


def authority(name: str, days: float) -> Issued:
  """A new authority that signs its own certificate.

  Args:
    name: its common name.
    days: for how long it is valid.
  """
  key = ec.generate_private_key(ec.SECP256R1())
  subject = _subject(name)
  usage = x509.KeyUsage(
    digital_signature=True,
    key_cert_sign=True,
    crl_sign=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    encipher_only=False,
    decipher_only=False,
  )
  builder = (
    _builder(subject, subject, key.public_key(), days)
    .add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
    .add_extension(usage, True)
    .add_extension(
      x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False
    )
  )
  return _signed(builder, key, key)


def issue(by: Issued, names: Sequence[str], days: float) -> Issued:
  """A certificate for servers and clients alike.

  Args:
    by: the authority.
    names: its subject alternative names: what has "://" in it becomes a URI,
      what has "@" an email address, an address of IPv4 or IPv6 that, anything
      else a DNS name. The first one is the common name too.
    days: for how long it is valid; a negative number makes one that has
      expired.

  Raises:
    InvalidArgument: a name cannot stand in a certificate.
  """
  issuer = load(by.certificate, 'the authority')[0]
  signer = serialization.load_pem_private_key(by.key, password=None)
  assert isinstance(signer, ec.EllipticCurvePrivateKey)
  key = ec.generate_private_key(ec.SECP256R1())
  try:
    alternative = x509.SubjectAlternativeName([_general(n) for n in names])
    subject = _subject(names[0])
  except ValueError as e:
    raise errors.InvalidArgument(
      f'{", ".join(names)}: not all can be names in a certificate ({e}); give'
      ' host names, IP addresses, email addresses or URIs in ASCII'
    ) from e
  builder = (
    _builder(subject, issuer.subject, key.public_key(), days)
    .add_extension(alternative, False)
    .add_extension(x509.BasicConstraints(ca=False, path_length=None), True)
    .add_extension(
      x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()),
      False,
    )
  )
  return _signed(builder, signer, key)


def _subject(name: str) -> x509.Name:
  # A common name has at most 64 characters (RFC 5280, appendix A.1).
  return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name[:64])])


def _general(name: str) -> x509.GeneralName:
  if '://' in name:
    return x509.UniformResourceIdentifier(name)
  if '@' in name:
    return x509.RFC822Name(name)
  try:
    return x509.IPAddress(ipaddress.ip_address(name))
  except ValueError:
    return x509.DNSName(name)


def _builder(
  subject: x509.Name,
  issuer: x509.Name,
  key: ec.EllipticCurvePublicKey,
  days: float,
) -> x509.CertificateBuilder:
  now = datetime.datetime.now(datetime.UTC)
  end = now + datetime.timedelta(days=days)
  return (
    x509.CertificateBuilder()
    .subject_name(subject)
    .issuer_name(issuer)
    .public_key(key)
    .serial_number(x509.random_serial_number())
    .not_valid_before(min(now, end) - _CLOCK_SKEW)
    .not_valid_after(end)
  )


def _signed(
  builder: x509.CertificateBuilder,
  signer: ec.EllipticCurvePrivateKey,
  key: ec.EllipticCurvePrivateKey,
) -> Issued:
  return Issued(
    builder.sign(signer, hashes.SHA256()).public_bytes(
      serialization.Encoding.PEM
    ),
    key.private_bytes(
      serialization.Encoding.PEM,
      serialization.PrivateFormat.PKCS8,
      serialization.NoEncryption(),
    ),
  )
