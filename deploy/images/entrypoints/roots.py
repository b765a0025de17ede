"""Where a cell is found, as the variables of stock Sax's images say it."""

from collections.abc import Mapping

ROOT = 'SAX_ROOT'


def sax_root(variables: Mapping[str, str]) -> str:
  """SAX_ROOT, or what stands for it; '' if nothing does."""
  if root := variables.get(ROOT):
    return root
  if bucket := variables.get('GSBUCKET'):
    return f'gs://{bucket}/sax-root'
  if directory := variables.get('SAX_DIR'):
    return f'{directory}/sax-root'
  bucket = variables.get('SAX_GCS_BUCKET')
  replica = variables.get('SAX_REPLICA_NAME')
  return f'gs://{bucket}/{replica}/sax-root' if bucket and replica else ''
