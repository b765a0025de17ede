"""Starts the model server in the image sax-model-server.

As in stock Sax's image, the cell's location is in SAX_ROOT, or else in
GSBUCKET, in SAX_DIR, or in SAX_GCS_BUCKET with SAX_REPLICA_NAME. The server
gets all arguments.
"""

from collections.abc import Mapping, Sequence
import os
import sys

ROOT = 'SAX_ROOT'


def sax_root(variables: Mapping[str, str]) -> str:
  """Returns SAX_ROOT, or the root that other variables give; '' without any."""
  if root := variables.get(ROOT):
    return root
  if bucket := variables.get('GSBUCKET'):
    return f'gs://{bucket}/sax-root'
  if directory := variables.get('SAX_DIR'):
    return f'{directory}/sax-root'
  bucket = variables.get('SAX_GCS_BUCKET')
  replica = variables.get('SAX_REPLICA_NAME')
  return f'gs://{bucket}/{replica}/sax-root' if bucket and replica else ''


def main(argv: Sequence[str]) -> None:
  root = sax_root(os.environ)
  if root:
    os.environ[ROOT] = root
  os.execvp('server', ['server', *argv[1:]])


if __name__ == '__main__':
  main(sys.argv)
