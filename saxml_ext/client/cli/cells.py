"""Implements the saxutil commands create, delete, getacl and setacl."""

from collections.abc import Iterable
import sys

from saxml_ext.client import sax
from saxml_ext.client.cli import command
from saxml_ext.client.cli import go_flags
from saxml_ext.client.transport import admin_client
from saxml_ext.common import cell as cell_files
from saxml_ext.common import errors
from saxml_ext.common import ids
from saxml_ext.common import storage
from saxml_ext.common import user_path
from saxml_ext.common.security import access
from saxml_ext.common.security import acl_file
from saxml_ext.protobuf import admin_pb2

# An admin server that does not answer within this many seconds counts as
# stopped.
_ADMIN_PATIENCE = 3.0
_ALL = 'all'


@command.declare(
  'create <cell id> <fs root> <admin ACL, for example acl/all>',
  'Create a Sax cell.',
  (3, 3),
)
def _create(context: command.Context, args: go_flags.Parsed) -> None:
  del context  # The command uses only files.
  cell, fs_root, acl = args.rest
  if not fs_root or not acl:
    raise errors.InvalidArgument(
      'the fs root and the admin ACL must not be empty. The ACL "acl/all"'
      ' admits everybody'
    )
  root = admin_client.root()
  if storage.exists(cell_files.config_path(root, cell)):
    raise errors.AlreadyExists(
      f'{cell} exists under {root}. Change it with admin_config'
    )
  config = admin_pb2.Config(fs_root=user_path.resolve(fs_root), admin_acl=acl)
  cell_files.write_config(root, cell, config)
  # An empty location shows clients that no admin server has ever started.
  cell_files.write_location(root, cell, admin_pb2.Location())


@command.declare(
  'delete <cell id>',
  'Delete a Sax cell: its config, location and state.',
  (1, 1),
)
def _delete(context: command.Context, args: go_flags.Parsed) -> None:
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
    raise errors.Cancelled(f'the answer was "{answer}", so nothing was deleted')
  for directory in reversed(directories):
    storage.delete(directory)


def _check_no_admin(cell: str, timeout: float) -> None:
  """Raises FailedPrecondition if an admin server serves the cell."""
  try:
    options = sax.AdminOptions(timeout=min(timeout, _ADMIN_PATIENCE))
    models = sax.ListAll(cell, options)
  except (
    errors.DeadlineExceeded,  # The admin server is gone.
    errors.FailedPrecondition,  # No admin server ever started.
  ):
    return
  raise errors.FailedPrecondition(
    f'an admin server serves {cell} with {len(models)} models. Stop it first'
  )


@command.declare(
  'getacl <cell id> | <model id> [all|<method>]',
  'Print the ACLs of a cell or model.',
  (1, 2),
)
def _getacl(context: command.Context, args: go_flags.Parsed) -> None:
  target, *method = args.rest
  options = context.admin_options()
  if method:
    items = sax.GetACL(target, _ALL, options)
    assert isinstance(items, dict)  # The ACLs of all methods are a dict.
    _print_method_acls(items, *method)
    _warn_of_unknown(ids.parse_model_id(target), items.values())
    return
  parsed = ids.parse_cell_or_model_id(target)
  kind = 'cell' if isinstance(parsed, ids.CellId) else 'model'
  acl = sax.GetACL(target, options=options)
  print(acl or f'No admin ACLs set for {kind}.')
  _warn_of_unknown(parsed, [str(acl)])


def _warn_of_unknown(
  target: ids.CellId | ids.ModelId, acls: Iterable[str]
) -> None:
  """Warns of lists that admit nobody because they do not exist."""
  cell = target.cell if isinstance(target, ids.ModelId) else str(target)
  lists = access.Access.from_cell(admin_client.root(), cell)
  for name in sorted(set(acls)):
    try:
      lists.check_name(name)
    except errors.Unimplemented:
      if name != acl_file.ALL:
        path = acl_file.path_of(admin_client.root(), cell)
        command.note(f'{name} admits nobody, because the cell has no {path}')
    except errors.SaxError as e:
      command.note(f'{name} admits nobody: {e.message}')


def _print_method_acls(items: dict[str, str], method: str) -> None:
  if not items:
    print('No ACLs set for model.')
  elif method == _ALL:
    for name, acl in sorted(items.items()):
      print(f'{name}: {acl}')
  else:
    print(items.get(method, 'No ACLs set for method.'))


@command.declare(
  'setacl <cell id> <acl> | <model id> [<method>] <acl>',
  'Set an ACL of a cell or model.',
  (2, 3),
)
def _setacl(context: command.Context, args: go_flags.Parsed) -> None:
  target, *method, acl = args.rest
  sax.SetACL(target, acl, method[0] if method else '', context.admin_options())
