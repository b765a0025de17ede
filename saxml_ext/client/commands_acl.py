"""saxutil commands that read and set ACLs."""

from saxml_ext.client import admin_calls
from saxml_ext.client import command
from saxml_ext.client import go_flags
from saxml_ext.client import sax
from saxml_ext.common import ids


def _getacl(context: command.Context, args: go_flags.Parsed) -> None:
  command.check_count(args.rest, 1, 2)
  target = args.rest[0]
  parsed = ids.parse_cell_or_model_id(target)
  options = context.admin_options()
  if isinstance(parsed, ids.CellId):
    print(sax.GetACL(target) or 'No admin ACLs set for cell.')
  elif len(args.rest) == 1:
    acl = sax.GetACL(target, options=options)
    print(acl or 'No admin ACLs set for model.')
  else:
    _print_method_acls(sax.GetACL(target, admin_calls.ALL, options), args)


def _print_method_acls(items: dict[str, str], args: go_flags.Parsed) -> None:
  method = args.rest[1]
  if not items:
    print('No ACLs set for model.')
  elif method == admin_calls.ALL:
    for name, acl in sorted(items.items()):
      print(f'{name}: {acl}')
  else:
    print(items.get(method, 'No ACLs set for method.'))


def _setacl(context: command.Context, args: go_flags.Parsed) -> None:
  command.check_count(args.rest, 2, 3)
  target, *method, acl = args.rest
  parsed = ids.parse_cell_or_model_id(target)
  if isinstance(parsed, ids.CellId) and method:
    raise go_flags.UsageError(f'a cell has no method "{method[0]}"')
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
