"""Files of a cell and of checkpoints: on local paths, in gs:// and s3://.

A write is whole or not at all: readers of the old name see the old bytes or
the new ones, also after a power cut. A bucket has no directories: there, a
directory is what the names of its objects begin with, and making one does
nothing.

Buckets and conditional writes go through tensorstore's key-value stores.
fsspec would have done for plain files, but needs a package for each kind of
bucket (s3fs, gcsfs), has no conditional write and cannot hold tensorstore's
arrays; obstore has conditional writes but would be a second client, with
credentials and retries of its own, beside the one that arrays need anyway.
What tensorstore lacks: it lists whole subtrees (fine for the thousand objects
of a checkpoint, poor for millions) and tells causes of errors only as text.

Where buckets are is told by the usual variables of the environment:

  S3    AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, AWS_REGION, AWS_DEFAULT_REGION
  GCS   TENSORSTORE_GCS_HTTP_URL, STORAGE_EMULATOR_HOST

and credentials by those of each cloud's own tools (AWS_ACCESS_KEY_ID ...,
GOOGLE_APPLICATION_CREDENTIALS ..., metadata servers); none are kept here.
"""

from collections.abc import Callable
import dataclasses
import functools
import os
import re
import shutil
import tempfile
from typing import Any, TypeVar

from saxml_ext.common import errors

_URL = re.compile(r'([A-Za-z][A-Za-z0-9+.-]*)://')
_BUCKET_URL = re.compile(r'(gs|s3)://([^/]+)/*(.*)')
_FILE_MODE = 0o644
_DIR_MODE = 0o777
# Half a minute in all; tensorstore's own 32 tries take a quarter of an hour.
_RETRIES = {
    'max_retries': 8,
    'initial_delay': '200ms',
    'max_delay': '8s',
}
# Less than half a second in all.
_FEW_RETRIES = {
    'max_retries': 2,
    'initial_delay': '100ms',
    'max_delay': '100ms',
}
# Version of what is not there: a write conditional on it only creates.
ABSENT = b'\x02'

_T = TypeVar('_T')


@dataclasses.dataclass(frozen=True)
class Versioned:
  """Contents of a file and what a conditional write needs to know of them.

  Attributes:
    data: the bytes; None if there is no such file.
    version: opaque; `ABSENT` if there is no such file.
  """

  data: bytes | None
  version: bytes


def is_url(path: str) -> bool:
  """Whether `path` names something in a bucket, not on a local disk."""
  return bool(_URL.match(path))


def kvstore_spec(path: str) -> dict[str, Any]:
  """tensorstore's specification of a file, or of a directory if it ends in /.

  Raises:
    InvalidArgument: `path` is empty or a URL of another kind.
  """
  if not path:
    raise errors.InvalidArgument('path "" is empty: name a file or directory')
  if not is_url(path):
    slash = '/' if path.endswith('/') else ''
    return {'driver': 'file', 'path': os.path.abspath(path) + slash}
  match = _BUCKET_URL.fullmatch(path)
  if not match or '..' in match[3].split('/') or '//' in match[3]:
    raise errors.InvalidArgument(
        f'"{path}" is no place for files: expected a local path,'
        ' gs://bucket/directory or s3://bucket/directory'
    )
  kind, bucket, key = match.groups()
  return _gcs_spec(bucket, key) if kind == 'gs' else _s3_spec(bucket, key)


def fail_soon() -> None:
  """Lets buckets that fail fail within seconds in this process.

  For servers that try again themselves, and that must notice without delay
  when a bucket works again. To be called before anything else here.
  """
  global _RETRIES
  _RETRIES = _FEW_RETRIES


def _s3_spec(bucket: str, key: str) -> dict[str, Any]:
  spec = {
      'driver': 's3',
      'bucket': bucket,
      'path': key,
      'context': {'s3_request_retries': _RETRIES},
  }
  env = os.environ
  endpoint = env.get('AWS_ENDPOINT_URL_S3') or env.get('AWS_ENDPOINT_URL')
  region = env.get('AWS_REGION') or env.get('AWS_DEFAULT_REGION')
  if endpoint:
    # Only Amazon's own endpoint can be asked for the region of a bucket.
    spec |= {'endpoint': endpoint, 'aws_region': region or 'us-east-1'}
  elif region:
    spec['aws_region'] = region
  return spec


def _gcs_spec(bucket: str, key: str) -> dict[str, Any]:
  emulator = os.environ.get('STORAGE_EMULATOR_HOST')
  if emulator:
    if not is_url(emulator):
      emulator = f'http://{emulator}'
    # The only way by which tensorstore learns of another endpoint.
    os.environ.setdefault('TENSORSTORE_GCS_HTTP_URL', emulator.rstrip('/'))
  return {
      'driver': 'gcs',
      'bucket': bucket,
      'path': key,
      'context': {'gcs_request_retries': _RETRIES},
  }


# What the specification of a bucket depends on, beside its URL.
_VARIABLES = (
    'AWS_ENDPOINT_URL_S3',
    'AWS_ENDPOINT_URL',
    'AWS_REGION',
    'AWS_DEFAULT_REGION',
    'STORAGE_EMULATOR_HOST',
    'TENSORSTORE_GCS_HTTP_URL',
)


@functools.lru_cache(maxsize=64)
def _open(root: str, unused_environment: tuple[str | None, ...]):
  # Imported late: it takes a quarter of a second, and local paths need none.
  import tensorstore as ts

  spec = kvstore_spec(root)
  return _call(root, lambda: ts.KvStore.open(spec).result())


def _locate(path: str) -> tuple[Any, str]:
  """A key-value store (a whole bucket, a local directory) and a key in it."""
  spec = kvstore_spec(path)
  if is_url(path):
    root, key = f'{path.split("://")[0]}://{spec["bucket"]}', spec['path']
  else:
    root, key = os.path.split(spec['path'])
    root = f'{root}/'
  environment = tuple(os.environ.get(name) for name in _VARIABLES)
  return _open(root, environment), key


def _file(path: str) -> tuple[Any, str]:
  store, key = _locate(path)
  if not key:
    raise errors.InvalidArgument(f'"{path}" is a whole bucket, not a file')
  return store, key


def _call(path: str, function: Callable[[], _T]) -> _T:
  """Calls tensorstore; turns what it raises into errors of our own.

  Raises:
    PermissionDenied: credentials are missing or do not suffice.
    Unavailable: anything else, such as an endpoint that does not answer.
  """
  try:
    return function()
  except (ValueError, OSError, RuntimeError, NotImplementedError) as e:
    reason = error_text(e)
    if re.search(r'PERMISSION_DENIED|UNAUTHENTICATED|HTTP.*40[13]', str(e)):
      raise errors.PermissionDenied(
          f'{path}: {reason}; check the credentials in the environment'
      ) from e
    raise errors.Unavailable(
        f'{path}: {reason}; check that the place exists, has space and can be'
        ' reached'
    ) from e


def error_text(error: Exception) -> str:
  """What tensorstore says, without its trailing JSON of source locations."""
  text = str(error).split(' [source locations=')[0]
  return ' '.join(text.split())


def read_bytes(path: str) -> bytes:
  """Reads a file.

  Raises:
    NotFound: there is no such file.
    OSError: the file cannot be read.
    InvalidArgument, PermissionDenied, Unavailable: see kvstore_spec, _call.
  """
  if is_url(path):
    data = read_versioned(path).data
    if data is None:
      raise errors.NotFound(f'{path}: no such object')
    return data
  kvstore_spec(path)
  try:
    with open(path, 'rb') as f:
      return f.read()
  except FileNotFoundError as e:
    raise errors.NotFound(f'{path}: no such file or directory') from e


def read_versioned(path: str) -> Versioned:
  """Reads a file for a conditional write; one that is not there is no error."""
  store, name = _file(path)
  found = _call(path, lambda: store.read(name).result())
  data = found.value if found.state == 'value' else None
  return Versioned(data, found.stamp.generation)


def write_if(path: str, data: bytes, version: bytes) -> bytes:
  """Writes a file if nobody has written it since it was of `version`.

  Of writers that start from the same version one wins. Local files are written
  under a lock beside them, so local writers must all use this function.

  Args:
    path: of the file.
    data: contents.
    version: of `read_versioned` or of the last `write_if`; `ABSENT` to create.

  Returns:
    The new version.

  Raises:
    Aborted: it is of another version by now, or was deleted.
    InvalidArgument, PermissionDenied, Unavailable: see kvstore_spec, _call.
  """
  store, name = _file(path)
  stamp = _call(
      path, lambda: store.write(name, data, if_equal=version).result()
  )
  if not stamp.generation:
    raise errors.Aborted(
        f'{path} was changed by somebody else: read it again, then write'
    )
  return stamp.generation


def write_bytes(path: str, data: bytes, sole_writer: bool = False) -> None:
  """Writes a file so that it is durable and never seen half written.

  Args:
    path: of the file.
    data: contents.
    sole_writer: nobody else writes this file at the same time. What a killed
      writer leaves on a disk then has a fixed name, `path` and .tmp, and goes
      when the file is written again; else it has a name of its own and stays.

  Raises:
    NotFound: the directory does not exist.
    OSError: the disk is full or the directory not writable; the old file, if
      any, is then unharmed.
    InvalidArgument, PermissionDenied, Unavailable: see kvstore_spec, _call.
  """
  if is_url(path):
    store, name = _file(path)
    _call(path, lambda: store.write(name, data).result())
    return
  kvstore_spec(path)
  directory, name = os.path.split(os.path.abspath(path))
  try:
    if sole_writer:
      temporary = os.path.join(directory, f'{name}.tmp')
      flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
      fd = os.open(temporary, flags, _FILE_MODE)
    else:
      fd, temporary = tempfile.mkstemp(prefix=name + '.', dir=directory)
  except FileNotFoundError as e:
    raise errors.NotFound(f'{directory}: no such directory') from e
  try:
    with os.fdopen(fd, 'wb') as f:
      os.fchmod(f.fileno(), _FILE_MODE)
      f.write(data)
      f.flush()
      os.fsync(f.fileno())
    os.rename(temporary, os.path.join(directory, name))
  except BaseException:
    os.unlink(temporary)
    raise
  _sync_directory(directory)


def _sync_directory(directory: str) -> None:
  # A rename is durable only once its directory is.
  fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
  try:
    os.fsync(fd)
  finally:
    os.close(fd)


def delete(path: str) -> None:
  """Deletes a file, or a directory and all below it; absent is fine.

  Raises:
    OSError: the file system refuses.
    InvalidArgument, PermissionDenied, Unavailable: see kvstore_spec, _call.
  """
  if is_url(path):
    store, name = _file(path.rstrip('/'))
    _call(path, lambda: store.write(name, None).result())
    pending = [store.write(f'{name}/{k}', None) for k in list_tree(path)]
    for write in pending:
      _call(path, write.result)
    return
  kvstore_spec(path)
  try:
    if os.path.isdir(path) and not os.path.islink(path):
      shutil.rmtree(path)
    else:
      os.unlink(path)
  except FileNotFoundError:
    pass  # As wanted.


def exists(path: str) -> bool:
  """Whether there is a file or directory."""
  if is_url(path):
    return is_file(path) or is_dir(path)
  kvstore_spec(path)
  return os.path.exists(path)


def is_file(path: str) -> bool:
  """Whether there is a file."""
  if is_url(path):
    is_bucket = not kvstore_spec(path)['path']
    return not is_bucket and read_versioned(path).data is not None
  kvstore_spec(path)
  return os.path.isfile(path)


def is_dir(path: str) -> bool:
  """Whether there is a directory: in a bucket, any object below the name."""
  if is_url(path):
    return bool(list_tree(path))
  kvstore_spec(path)
  return os.path.isdir(path)


def list_dir(path: str) -> list[str]:
  """Names in a directory, sorted.

  Raises:
    NotFound: there is no such directory.
    InvalidArgument, PermissionDenied, Unavailable: see kvstore_spec, _call.
  """
  if is_url(path):
    names = sorted({key.split('/')[0] for key in list_tree(path)})
    if not names:
      raise errors.NotFound(f'{path}: no object has a name below it')
    return names
  kvstore_spec(path)
  try:
    return sorted(os.listdir(path))
  except (FileNotFoundError, NotADirectoryError) as e:
    raise errors.NotFound(f'{path}: no such directory') from e


def list_tree(path: str) -> list[str]:
  """Paths of all files below a directory, relative to it, sorted."""
  if not is_url(path):
    return sorted(
        os.path.relpath(os.path.join(parent, name), path)
        for parent, _, names in os.walk(path)
        for name in names
    )
  import tensorstore as ts

  store, key = _locate(path.rstrip('/'))
  prefix = f'{key}/' if key else ''
  # All that begins with "a/" comes before "a0", as 0 follows /.
  below = ts.KvStore.KeyRange(prefix, f'{key}0' if key else '')
  keys = _call(path, lambda: store.list(below).result())
  names = [key.decode('utf-8', 'replace') for key in keys]
  return sorted(n.removeprefix(prefix) for n in names if n.startswith(prefix))


def make_dirs(path: str) -> None:
  """Creates a directory and its parents; one that exists is fine.

  Raises:
    OSError: it cannot be created.
    InvalidArgument: see kvstore_spec.
  """
  kvstore_spec(path)
  if not is_url(path):
    os.makedirs(path, mode=_DIR_MODE, exist_ok=True)
