"""Starts the admin server in the image sax-admin-server.

It first writes the cell's config. As in stock Sax's image, these variables give
the location of the cell:

    GSBUCKET   files are in gs://$GSBUCKET/sax-root and .../sax-fs-root
    SAX_ROOT   the directory of the cell, if no bucket is given
    FS_ROOT    the directory of the state (SAX_FS_ROOT means the same)
    SAX_CELL   the cell; by default, /sax/test
    PORT       the port; by default, 10000 (or SAX_ADMIN_SERVER_PORT)

An existing config of a cell is kept, with its access control. The admin server
gets all arguments.
"""

from collections.abc import Mapping, Sequence
import os
import subprocess
import sys

from deploy.images.entrypoints import model
from saxml_ext.common import cell
from saxml_ext.common import errors
from saxml_ext.common import storage

_CELL = '/sax/test'
_PORT = '10000'


def settings(variables: Mapping[str, str]) -> dict[str, str]:
  """Returns the variables of our programs for the variables of the image.

  Raises:
    errors.InvalidArgument: The variables do not give the location of the files.
  """
  fs_root = variables.get(cell.FS_ROOT_VARIABLE) or variables.get('FS_ROOT')
  bucket = variables.get('GSBUCKET')
  if not fs_root and bucket:
    fs_root = f'gs://{bucket}/sax-fs-root'
  root = model.sax_root(variables)
  if not root or not fs_root:
    raise errors.InvalidArgument(
      'set GSBUCKET to a bucket for the files of the cell, or SAX_ROOT and'
      ' FS_ROOT to two directories that the hosts share'
    )
  return {
    model.ROOT: root,
    cell.FS_ROOT_VARIABLE: fs_root,
    cell.CELL_VARIABLE: variables.get(cell.CELL_VARIABLE) or _CELL,
    cell.ADMIN_PORT_VARIABLE: (
      variables.get(cell.ADMIN_PORT_VARIABLE) or variables.get('PORT') or _PORT
    ),
  }


def _has_config(root: str, cell_id: str) -> bool:
  try:
    cell.read_config(root, cell_id)
  except (errors.NotFound, errors.FailedPrecondition, FileNotFoundError):
    return False
  return True


def is_set_up(env: Mapping[str, str]) -> bool:
  """Returns True if the cell has a config, and False if it is new.

  Raises:
    errors.FailedPrecondition: The config of a cell with models is gone. A new
      one would give rights to everybody.
    errors.Internal: The config is damaged.
  """
  cell_id = env[cell.CELL_VARIABLE]
  if _has_config(env[model.ROOT], cell_id):
    return True
  state = cell.state_path(env[cell.FS_ROOT_VARIABLE], cell_id)
  if storage.exists(state):
    raise errors.FailedPrecondition(
      f'{cell.config_path(env[model.ROOT], cell_id)} is gone, but the cell has'
      f' models in {state}. Restore the config, or write one with admin_config'
      ' --fs_root and --admin_acl'
    )
  return False


def main(argv: Sequence[str]) -> None:
  try:
    env = settings(os.environ)
    os.environ.update(env)
    has_config = is_set_up(env)
  except (errors.SaxError, OSError) as e:
    sys.exit(f'sax-admin-server: {e}')
  if not has_config:
    code = subprocess.call(['admin_config'])
    if code:
      sys.exit(code)
  os.execvp('admin_server', ['admin_server', *argv[1:]])


if __name__ == '__main__':
  main(sys.argv)
