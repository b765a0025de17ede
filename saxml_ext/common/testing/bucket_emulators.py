"""Emulators of Amazon S3 and Google Cloud Storage on loopback, for tests.

moto's server and gcp-storage-emulator are real HTTP servers in threads of this
process. gcp-storage-emulator supports neither conditional writes nor empty
objects.
"""

from collections.abc import Iterator
import contextlib
import logging
import os
from unittest import mock

import boto3
from gcp_storage_emulator import server as gcs_server
from moto import server as moto_server

from saxml_ext.common import net

BUCKET = 'test-bucket'
_HOST = '127.0.0.1'
# These packages log every request.
_TALKATIVE = ('gcp_storage_emulator', 'api', 'werkzeug')


@contextlib.contextmanager
def running() -> Iterator[dict[str, str]]:
  """Runs both emulators, each with one empty bucket.

  The environment names their endpoints meanwhile.

  Yields:
    The URLs of the buckets by their schemes.
  """
  for name in _TALKATIVE:
    logging.getLogger(name).setLevel(logging.CRITICAL)
  s3 = moto_server.ThreadedMotoServer(_HOST, 0, verbose=False)
  s3.start()
  port = net.pick_free_port()
  gcs = gcs_server.create_server(
    _HOST, port, in_memory=True, default_bucket=BUCKET
  )
  gcs.start()
  endpoint = 'http://{}:{}'.format(*s3.get_host_and_port())
  variables = {
    'AWS_ENDPOINT_URL': endpoint,
    'AWS_REGION': 'us-east-1',
    'AWS_ACCESS_KEY_ID': 'emulator',
    'AWS_SECRET_ACCESS_KEY': 'emulator',
    'STORAGE_EMULATOR_HOST': f'{_HOST}:{port}',
  }
  try:
    with mock.patch.dict(os.environ, variables):
      boto3.client('s3').create_bucket(Bucket=BUCKET)
      yield {'s3': f's3://{BUCKET}', 'gs': f'gs://{BUCKET}'}
  finally:
    s3.stop()
    gcs.stop()
