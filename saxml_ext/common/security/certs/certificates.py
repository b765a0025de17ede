"""Reads X.509 certificates, and issues them with a private authority.

A cell without a certificate authority gets one from `authority`; `make_certs`
is the program for that. Keys use the curve P-256. Every TLS library supports
it, and its handshakes cost less than those of RSA.
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

# The clocks of a cell's machines may differ by this much.
_CLOCK_SKEW = datetime.timedelta(hours=1)


@dataclasses.dataclass(frozen=True)
class Issued:
  """A certificate with its private key, both in PEM."""

  certificate: bytes
  key: bytes = dataclasses.field(repr=False)


def load(pem: bytes, what: str) -> list[x509.Certificate]:
  """Parses the certificates of a PEM file.

  Args:
    pem: The contents of the file.
    what: The name of the file, for messages.

  Raises:
    InvalidArgument: The file has no certificate.
  """
  try:
    return x509.load_pem_x509_certificates(pem)
  except ValueError as e:
    raise errors.InvalidArgument(
      f'{what} has no certificate in PEM format, between the lines BEGIN'
      ' CERTIFICATE and END CERTIFICATE'
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
      f'{what}: the certificate of {names} expired at {end:%Y-%m-%d %H:%M:%S}'
      ' UTC. Replace it'
    )
  if now < begin:
    raise errors.InvalidArgument(
      f'{what}: the certificate of {names} is not valid before'
      f" {begin:%Y-%m-%d %H:%M:%S} UTC. Set this machine's clock, or wait"
    )


def check_key(key: bytes, certificate: x509.Certificate, what: str) -> None:
  """Checks that a private key in PEM format belongs to a certificate.

  Args:
    key: The contents of the key's file.
    certificate: The certificate to which the key must belong.
    what: The name of the key's file, for messages.

  Raises:
    InvalidArgument: The key belongs to another certificate, has a password, or
      is malformed.
  """
  try:
    private = serialization.load_pem_private_key(key, password=None)
  except (ValueError, TypeError) as e:
    raise errors.InvalidArgument(
      f'{what} is not a private key in PEM format without a password. Use the'
      ' key of the certificate'
    ) from e
  if private.public_key() != certificate.public_key():
    raise errors.InvalidArgument(
      f'{what} is the private key of another certificate. Use the key with'
      ' which the certificate was made'
    )


def names_of(certificate: x509.Certificate) -> tuple[str, ...]:
  """Returns the names to which a certificate was issued.

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
  """Makes a new authority that signs its own certificate.

  Args:
    name: The common name of the authority.
    days: The number of days for which it is valid.
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
  """Issues a certificate for use by servers and clients.

  Args:
    by: The authority that issues it.
    names: The subject alternative names. A name with "://" becomes a URI, and a
      name with "@" an email address. An IPv4 or IPv6 address becomes an IP
      address, and any other name a DNS name. The first name is also the common
      name.
    days: The number of days for which it is valid. A negative number makes an
      expired certificate.

  Raises:
    InvalidArgument: A certificate cannot have such a name.
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
      f'{", ".join(names)}: not all are valid names in a certificate ({e}).'
      ' Use host names, IP addresses, email addresses or URIs in ASCII'
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
