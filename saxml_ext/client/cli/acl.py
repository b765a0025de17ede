"""saxutil commands that read and set ACLs."""

from collections.abc import Iterable
import sys

from saxml_ext.client import sax
from saxml_ext.client.cli import command
from saxml_ext.client.cli import go_flags
from saxml_ext.client.transport import admin_client
from saxml_ext.client.transport import options as options_lib
from saxml_ext.common import errors
from saxml_ext.common import ids
from saxml_ext.common.security import access
from saxml_ext.common.security import acl_file

_ALL = 'all'


def _getacl(context: command.Context, args: go_flags.Parsed) -> None:
  command.check_count(args.rest, 1, 2)
  target, *method = args.rest
  target = options_lib.model_id(target)
  options = context.admin_options()
  if method:
    items = sax.GetACL(target, _ALL, options)
    assert isinstance(items, dict)  # As it is of all methods.
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
  """Says which lists admit nobody, because they do not exist."""
  cell = target.cell if isinstance(target, ids.ModelId) else str(target)
  lists = access.Access.of_cell(admin_client.root(), cell)
  for name in sorted(set(acls)):
    try:
      lists.check_name(name)
    except errors.Unimplemented:
      if name != acl_file.ALL:
        print(
          f'Note: {name} admits nobody: the cell has no'
          f' {acl_file.path_of(admin_client.root(), cell)}',
          file=sys.stderr,
        )
    except errors.SaxError as e:
      print(f'Note: {name} admits nobody: {e.message}', file=sys.stderr)


def _print_method_acls(items: dict[str, str], method: str) -> None:
  if not items:
    print('No ACLs set for model.')
  elif method == _ALL:
    for name, acl in sorted(items.items()):
      print(f'{name}: {acl}')
  else:
    print(items.get(method, 'No ACLs set for method.'))


def _setacl(context: command.Context, args: go_flags.Parsed) -> None:
  command.check_count(args.rest, 2, 3)
  target, *method, acl = args.rest
  sax.SetACL(target, acl, method[0] if method else '', context.admin_options())


COMMANDS = (
  command.Command(
    'getacl',
    'Print the ACLs of a cell or model.',
    'getacl <cell id> | <model id> [all|<method>]',
    _getacl,
  ),
  command.Command(
    'setacl',
    'Set an ACL of a cell or model.',
    'setacl <cell id> <acl> | <model id> [<method>] <acl>',
    _setacl,
  ),
)
