"""Opens files on disks and in buckets as key-value stores of tensorstore.

The usual environment variables give the locations of buckets:

  S3    AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, AWS_REGION, AWS_DEFAULT_REGION
  GCS   TENSORSTORE_GCS_HTTP_URL, STORAGE_EMULATOR_HOST

Credentials come from the variables of each cloud's own tools (AWS_ACCESS_KEY_ID
..., GOOGLE_APPLICATION_CREDENTIALS ..., metadata servers). This module stores
none.
"""

from collections.abc import Callable
import functools
import os
import re
from typing import Any, TypeVar

from saxml_ext.common import errors

_URL = re.compile(r'([A-Za-z][A-Za-z0-9+.-]*)://')
_BUCKET_URL = re.compile(r'(gs|s3)://([^/]+)/*(.*)')
# These retries take half a minute in total. tensorstore's default of 32 retries
# takes a quarter of an hour.
_RETRIES = {'max_retries': 8, 'initial_delay': '200ms', 'max_delay': '8s'}
# These retries take less than half a second in total.
_FEW_RETRIES = {
  'max_retries': 2,
  'initial_delay': '100ms',
  'max_delay': '100ms',
}

_T = TypeVar('_T')


def is_url(path: str) -> bool:
  """Returns True if `path` is in a bucket, and not on a local disk."""
  return bool(_URL.match(path))


def spec(path: str) -> dict[str, Any]:
  """Returns the tensorstore spec of a file, or of a directory if it ends in /.

  Raises:
    InvalidArgument: `path` is empty, or its URL has an unknown scheme.
  """
  if not path:
    raise errors.InvalidArgument('the path is empty. Pass a file or directory')
  if not is_url(path):
    slash = '/' if path.endswith('/') else ''
    return {'driver': 'file', 'path': os.path.abspath(path) + slash}
  match = _BUCKET_URL.fullmatch(path)
  if not match or '..' in match[3].split('/') or '//' in match[3]:
    raise errors.InvalidArgument(
      f'"{path}" is not a path for files. Pass a local path,'
      ' gs://bucket/directory or s3://bucket/directory'
    )
  kind, bucket, key = match.groups()
  return _gcs_spec(bucket, key) if kind == 'gs' else _s3_spec(bucket, key)


def fail_soon() -> None:
  """Limits the retries of failing buckets to seconds in this process.

  Servers that retry by themselves call this, so that they notice without delay
  when a bucket works again. Call it before any other function of this module.
  """
  global _RETRIES
  _RETRIES = _FEW_RETRIES


def _s3_spec(bucket: str, key: str) -> dict[str, Any]:
  result = {
    'driver': 's3',
    'bucket': bucket,
    'path': key,
    'context': {'s3_request_retries': _RETRIES},
  }
  env = os.environ
  endpoint = env.get('AWS_ENDPOINT_URL_S3') or env.get('AWS_ENDPOINT_URL')
  region = env.get('AWS_REGION') or env.get('AWS_DEFAULT_REGION')
  if endpoint:
    # Only Amazon's own endpoint can report the region of a bucket.
    result |= {'endpoint': endpoint, 'aws_region': region or 'us-east-1'}
  elif region:
    result['aws_region'] = region
  return result


def _gcs_spec(bucket: str, key: str) -> dict[str, Any]:
  emulator = os.environ.get('STORAGE_EMULATOR_HOST')
  if emulator:
    if not is_url(emulator):
      emulator = f'http://{emulator}'
    # tensorstore has no other setting for the endpoint.
    os.environ.setdefault('TENSORSTORE_GCS_HTTP_URL', emulator.rstrip('/'))
  return {
    'driver': 'gcs',
    'bucket': bucket,
    'path': key,
    'context': {'gcs_request_retries': _RETRIES},
  }


# The spec of a bucket depends on these variables and on its URL.
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
  # tensorstore is imported late because the import takes a quarter of a second,
  # and local paths do not need it.
  import tensorstore as ts

  return call(root, lambda: ts.KvStore.open(spec(root)).result())


def locate(path: str) -> tuple[Any, str]:
  """Returns a key-value store (a bucket or local directory) and a key in it."""
  parts = spec(path)
  if is_url(path):
    root, key = f'{path.split("://")[0]}://{parts["bucket"]}', parts['path']
  else:
    root, key = os.path.split(parts['path'])
    root = f'{root}/'
  environment = tuple(os.environ.get(name) for name in _VARIABLES)
  return _open(root, environment), key


def locate_file(path: str) -> tuple[Any, str]:
  """Returns the key-value store and the key of a file; see `locate`.

  Raises:
    InvalidArgument: The path is a whole bucket.
  """
  store, key = locate(path)
  if not key:
    raise errors.InvalidArgument(f'"{path}" is a whole bucket, not a file')
  return store, key


def call(path: str, function: Callable[[], _T]) -> _T:
  """Calls tensorstore and converts its errors to ours.

  Args:
    path: The path that the messages name.
    function: The function that makes the call.

  Returns:
    The result of the function.

  Raises:
    PermissionDenied: Credentials are missing or insufficient.
    Unavailable: The call failed for another reason, for example because an
      endpoint does not answer.
  """
  try:
    return function()
  except (ValueError, OSError, RuntimeError, NotImplementedError) as e:
    reason = error_text(e)
    if re.search(r'PERMISSION_DENIED|UNAUTHENTICATED|HTTP.*40[13]', str(e)):
      raise errors.PermissionDenied(
        f'{path}: {reason}. Check the credentials in the environment'
      ) from e
    raise errors.Unavailable(
      f'{path}: {reason}. Check that the location exists, has space and is'
      ' reachable'
    ) from e


def error_text(error: Exception) -> str:
  """Returns tensorstore's message without its JSON of source locations."""
  text = str(error).split(' [source locations=')[0]
  return ' '.join(text.split())
