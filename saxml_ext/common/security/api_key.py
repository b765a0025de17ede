"""Makes API keys for the HTTP gateway, lists them and revokes them.

    api_key --api_keys_file=/etc/sax/api_keys --name=alice@example.org
    api_key --api_keys_file=/etc/sax/api_keys --list
    api_key --api_keys_file=/etc/sax/api_keys --revoke=alice@example.org

A new key is printed once. The file stores only its hash. A gateway reads the
changed file within two seconds.
"""

from collections.abc import Callable, Sequence
import fcntl
import os
import sys

from absl import flags

from saxml_ext.common import errors
from saxml_ext.common import files
from saxml_ext.common import program
from saxml_ext.common import user_path
from saxml_ext.common.security import api_keys

_FILE = flags.DEFINE_string(
  'api_keys_file', None, 'The file with the hashes of all keys.'
)
_NAME = flags.DEFINE_string('name', None, 'The owner of the new key.')
_LIST = flags.DEFINE_bool('list', False, 'Print the owners of all keys.')
_REVOKE = flags.DEFINE_string('revoke', None, 'Revoke all keys of this owner.')

# Only the owner of the file and the gateway's user must read it.
_MODE = 0o600
_MAX_BYTES = 16 * 2**20


def _edit(path: str, change: Callable[[list[str]], list[str]]) -> None:
  """Replaces the file's lines; concurrent programs lose none."""
  # Others must not replace the file while it is read and written.
  files.check_private(os.path.dirname(os.path.realpath(path)))
  lock = os.open(
    f'{path}.lock',
    os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK,
    _MODE,
  )
  try:
    files.check_private(f'{path}.lock', os.fstat(lock))
    fcntl.flock(lock, fcntl.LOCK_EX)
    lines, mode = [], _MODE
    if os.path.exists(path):
      lines = _read(path).decode('ascii').splitlines()
      mode = os.stat(path).st_mode & 0o755
    api_keys.parse('\n'.join(lines).encode('ascii'))
    text = ''.join(f'{line}\n' for line in change(lines))
    with files.replacing(path, permissions=mode) as f:
      f.write(text)
  finally:
    os.close(lock)


def add(path: str, name: str) -> str:
  """Makes a key, adds its hash to the file and returns the key.

  Raises:
    InvalidArgument: The name is invalid, or the file is malformed.
    OSError: The file cannot be written, or another user may write it.
  """
  key, line = api_keys.make(name)
  _edit(path, lambda lines: [*lines, str(line)])
  return key


def revoke(path: str, name: str) -> int:
  """Removes all keys of an owner, and returns their number.

  Raises:
    NotFound: The owner has no keys.
    InvalidArgument: The file is malformed.
    OSError: The file cannot be written.
  """
  revoked = [n for n in names(path) if n == name]
  if not revoked:
    raise errors.NotFound(f'{path} has no key of {name}. See --list')
  _edit(path, lambda lines: [i for i in lines if i.split(' ', 1)[0] != name])
  return len(revoked)


def names(path: str) -> list[str]:
  """Returns the owners of the keys, in the order of the file."""
  return [line.name for line in api_keys.parse(_read(path)).values()]


def _read(path: str) -> bytes:
  return files.read_file(path, _MAX_BYTES, check=files.check_private)


def _run(path: str) -> None:
  chosen = [_NAME.value is not None, _LIST.value, _REVOKE.value is not None]
  if sum(chosen) != 1:
    raise errors.InvalidArgument('set one of --name, --list and --revoke')
  if _LIST.value:
    print('\n'.join(names(path)) or 'There are no keys.')
  elif _NAME.value is not None:
    print(add(path, _NAME.value))
    print('This key is printed only once. Keep it secret.', file=sys.stderr)
  else:
    print(f'revoked: {revoke(path, _REVOKE.value)}')


def main(argv: Sequence[str]) -> None:
  """Adds, lists or revokes keys by the flags, or exits with 1."""
  del argv
  with program.exit_on('api_key', (errors.SaxError, OSError, UnicodeError)):
    _run(user_path.resolve(_FILE.value))


if __name__ == '__main__':
  flags.mark_flag_as_required('api_keys_file')
  program.run(main)
