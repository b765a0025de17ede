"""API keys of those who call over HTTP, kept as hashes.

A file has a line for each key: its owner's name, a salt and a hash, with
spaces between. An owner may have several keys, so that one can be replaced
while the other is still in use; a line that is deleted revokes its key.

    alice@example.org 5f1c9a... 9b2e41...

A key is "sk-sax-", the salt, and 256 random bits. Those cannot be guessed at
any speed, so the hash is one SHA-256 and not a slow one like scrypt, which is
for passwords that people choose: at a gateway, which hashes before it knows who
calls, it would be a way to use its memory and cores up. The salt says which
line to compare with, and makes equal keys of two files look different.
"""

from collections.abc import Mapping
import dataclasses
import hashlib
import hmac
import re
import secrets

from saxml_ext.common import errors
from saxml_ext.common import storage
from saxml_ext.common.security import acl_file

_PREFIX = 'sk-sax-'
_SALT_BYTES = 12
_SECRET_BYTES = 32
_SALT_CHARS = 2 * _SALT_BYTES
_KEY = re.compile(rf'{_PREFIX}([0-9a-f]{{{_SALT_CHARS}}})([A-Za-z0-9_-]{{43}})')
_LINE = re.compile(rf'(\S+) ([0-9a-f]{{{_SALT_CHARS}}}) ([0-9a-f]{{64}})')
# Seconds in which a new key works and a revoked one does not any more.
_INTERVAL = 2.0


@dataclasses.dataclass(frozen=True)
class Line:
  """A line of the file: whose key, its salt and its hash."""

  name: str
  salt: str
  digest: str

  def __str__(self) -> str:
    return f'{self.name} {self.salt} {self.digest}'


def make(name: str) -> tuple[str, Line]:
  """A new key, and the line that lets it in.

  Raises:
    InvalidArgument: nobody can have such a name.
  """
  acl_file.check_name(name)
  salt = secrets.token_hex(_SALT_BYTES)
  secret = secrets.token_urlsafe(_SECRET_BYTES)
  return f'{_PREFIX}{salt}{secret}', Line(name, salt, _digest(salt, secret))


def parse(data: bytes) -> Mapping[str, Line]:
  """The file's lines by salt; empty lines and those with # do not count.

  Raises:
    InvalidArgument: a line is malformed, or a salt is there twice.
  """
  result: dict[str, Line] = {}
  text = data.decode('ascii', 'replace')
  for number, line in enumerate(text.splitlines(), 1):
    if not line.strip() or line.startswith('#'):
      continue
    found = _LINE.fullmatch(line.strip())
    # Without its text: somebody may have put a key there by mistake.
    if not found:
      raise errors.InvalidArgument(
        f'line {number} is not "<name> <salt> <hash>": delete it, and make a'
        ' key with //saxml_ext/common/security:api_key'
      )
    item = Line(*found.groups())
    acl_file.check_name(item.name)
    if item.salt in result:
      raise errors.InvalidArgument(
        f'line {number} has the salt of another line: delete one of the two'
      )
    result[item.salt] = item
  return result


class Keys:
  """The keys of a file, which may change meanwhile. Thread-safe."""

  def __init__(self, path: str):
    """Reads the file.

    Raises:
      InvalidArgument: it is not there, or broken.
    """
    self._file = storage.Reread[Mapping[str, Line]](path, parse, {}, {})
    self.refresh()
    if not self._file.good:
      raise errors.InvalidArgument(
        f'the API keys in {path} cannot be used:'
        f' {self._file.trouble or "there is no such file"}'
      )
    self._file.follow(_INTERVAL)

  def refresh(self) -> None:
    """Reads the file again; while it is broken, the old keys hold."""
    self._file.refresh()

  def close(self) -> None:
    """Reads the file no more."""
    self._file.close()

  def name(self, key: str) -> str | None:
    """Whose key it is; None if it lets nobody in."""
    found = _KEY.fullmatch(key)
    if not found:
      return None
    salt, secret = found.groups()
    line = self._file.value.get(salt)
    if line is None:
      return None
    equal = hmac.compare_digest(_digest(salt, secret), line.digest)
    return line.name if equal else None


def _digest(salt: str, secret: str) -> str:
  return hashlib.sha256(f'{salt}{secret}'.encode('ascii')).hexdigest()
