"""API keys of HTTP clients, stored as hashes.

A file has one line per key: its owner's name, a salt and a hash, separated by
spaces. An owner may have several keys. So one key can be replaced while the
other is still in use. Deleting a line revokes its key.

    alice@example.org 5f1c9a... 9b2e41...

A key is "sk-sax-", the salt, and 256 random bits, which nobody can guess at any
speed. So the hash is one SHA-256, and not a slow hash such as scrypt, which
protects passwords that people choose. The gateway must hash a key before it
knows the caller. With a slow hash, anyone could use up its memory and cores.
The salt selects the line to compare with. It also makes equal keys of two files
look different.
"""

from collections.abc import Mapping
import dataclasses
import hashlib
import hmac
import re
import secrets

from saxml_ext.common import errors
from saxml_ext.common import files
from saxml_ext.common import storage
from saxml_ext.common.security import acl_file

_PREFIX = 'sk-sax-'
_SALT_BYTES = 12
_SECRET_BYTES = 32
_SALT_CHARS = 2 * _SALT_BYTES
_KEY = re.compile(rf'{_PREFIX}([0-9a-f]{{{_SALT_CHARS}}})([A-Za-z0-9_-]{{43}})')
_LINE = re.compile(rf'(\S+) ([0-9a-f]{{{_SALT_CHARS}}}) ([0-9a-f]{{64}})')
# Within this many seconds, a new key works and a revoked key stops working.
_INTERVAL = 2.0


@dataclasses.dataclass(frozen=True)
class Line:
  """A line of the file: the key's owner, its salt and its hash."""

  name: str
  salt: str
  digest: str

  def __str__(self) -> str:
    return f'{self.name} {self.salt} {self.digest}'


def make(name: str) -> tuple[str, Line]:
  """Makes a new key, and returns it with the line that admits it.

  Raises:
    InvalidArgument: The name is invalid.
  """
  acl_file.check_name(name)
  salt = secrets.token_hex(_SALT_BYTES)
  secret = secrets.token_urlsafe(_SECRET_BYTES)
  return f'{_PREFIX}{salt}{secret}', Line(name, salt, _digest(salt, secret))


def parse(data: bytes) -> Mapping[str, Line]:
  """Parses the file and returns its lines by salt.

  Empty lines and lines that begin with # are skipped.

  Raises:
    InvalidArgument: A line is malformed, or a salt occurs twice.
  """
  result: dict[str, Line] = {}
  text = data.decode('ascii', 'replace')
  for number, line in enumerate(text.splitlines(), 1):
    if not line.strip() or line.startswith('#'):
      continue
    match = _LINE.fullmatch(line.strip())
    # The message leaves out the text, because it may be a key in the wrong
    # place.
    if not match:
      raise errors.InvalidArgument(
        f'line {number} is not "<name> <salt> <hash>". Delete it, and make a'
        ' key with //saxml_ext/common/security:api_key'
      )
    item = Line(*match.groups())
    acl_file.check_name(item.name)
    if item.salt in result:
      raise errors.InvalidArgument(
        f'line {number} has the salt of another line. Delete one of the two'
      )
    result[item.salt] = item
  return result


class Keys:
  """The keys of a file, which may change at any time. Thread-safe."""

  def __init__(self, path: str):
    """Reads the file.

    Raises:
      InvalidArgument: The file does not exist or is malformed, or another
        user may write it.
    """
    self._file = storage.Reread[Mapping[str, Line]](
      path, parse, {}, {}, check=files.check_private
    )
    self.refresh()
    if not self._file.good:
      raise errors.InvalidArgument(
        f'the API keys in {path} cannot be used:'
        f' {self._file.trouble or "the file does not exist"}'
      )
    self._file.follow(_INTERVAL)

  def refresh(self) -> None:
    """Reads the file again. If it is malformed, the old keys stay valid."""
    self._file.refresh()

  def close(self) -> None:
    """Stops reading the file."""
    self._file.close()

  def name(self, key: str) -> str | None:
    """Returns the owner of a key, or None if the key is not valid."""
    match = _KEY.fullmatch(key)
    if not match:
      return None
    salt, secret = match.groups()
    line = self._file.value.get(salt)
    if line is None:
      return None
    equal = hmac.compare_digest(_digest(salt, secret), line.digest)
    return line.name if equal else None


def _digest(salt: str, secret: str) -> str:
  return hashlib.sha256(f'{salt}{secret}'.encode('ascii')).hexdigest()
