"""saxutil commands that create and delete cells."""

import sys

from saxml_ext.client import sax
from saxml_ext.client.cli import command
from saxml_ext.client.cli import go_flags
from saxml_ext.client.transport import admin_client
from saxml_ext.common import cell as cell_files
from saxml_ext.common import errors
from saxml_ext.common import storage
from saxml_ext.common import user_path
from saxml_ext.protobuf import admin_pb2

# So long an admin server is given to show that it lives.
_ADMIN_PATIENCE = 3.0


def _create(context: command.Context, args: go_flags.Parsed) -> None:
  del context  # Files only.
  command.check_count(args.rest, 3, 3)
  cell, fs_root, acl = args.rest
  if not fs_root or not acl:
    raise errors.InvalidArgument(
      'neither the fs root nor the admin ACL may be empty; an ACL that admits '
      'everybody is "acl/all"'
    )
  root = admin_client.root()
  if storage.exists(cell_files.config_path(root, cell)):
    raise errors.AlreadyExists(
      f'{cell} exists under {root}: change it with admin_config'
    )
  config = admin_pb2.Config(fs_root=user_path.resolve(fs_root), admin_acl=acl)
  cell_files.write_config(root, cell, config)
  # Tells clients that no admin server was ever started.
  cell_files.write_location(root, cell, admin_pb2.Location())


def _delete(context: command.Context, args: go_flags.Parsed) -> None:
  command.check_count(args.rest, 1, 1)
  [cell] = args.rest
  root = admin_client.root()
  config = cell_files.read_config(root, cell)
  directories = [
    cell_files.cell_dir(root, cell),
    cell_files.cell_dir(config.fs_root, cell),
  ]
  _check_no_admin(cell, context.remaining())
  print(f'Delete {" and ".join(directories)}? (y|n) ', end='', flush=True)
  answer = sys.stdin.readline().strip()
  if answer.lower() not in ('y', 'yes'):
    raise errors.Cancelled(f'the answer was "{answer}": nothing was deleted')
  for directory in reversed(directories):
    storage.delete(directory)


def _check_no_admin(cell: str, timeout: float) -> None:
  """Raises FailedPrecondition if an admin server serves the cell."""
  try:
    options = sax.AdminOptions(timeout=min(timeout, _ADMIN_PATIENCE))
    models = sax.ListAll(cell, options)
  except (
    errors.DeadlineExceeded,  # It is gone.
    errors.FailedPrecondition,  # There never was one.
  ):
    return
  raise errors.FailedPrecondition(
    f'an admin server serves {cell} with {len(models)} models: stop it first'
  )


COMMANDS = (
  command.Command(
    'create',
    'Create a Sax cell.',
    'create <cell id> <fs root> <admin ACL, for example acl/all>',
    _create,
  ),
  command.Command(
    'delete',
    'Delete a Sax cell: its config, location and state.',
    'delete <cell id>',
    _delete,
  ),
)
