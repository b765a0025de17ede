"""What a user can do about a command that failed."""

from collections.abc import Sequence

import grpc

from saxml_ext.common import errors
from saxml_ext.common import ids

_Code = grpc.StatusCode


def of(
  error: errors.SaxError, command: str, args: Sequence[str], timeout: float
) -> str:
  """One sentence that the error's own text does not have; "" for none.

  Args:
    error: why the command failed.
    command: its name.
    args: its arguments without flags.
    timeout: seconds that it was given.
  """
  target = args[0] if args else ''
  if error.code is _Code.DEADLINE_EXCEEDED:
    return (
      f'the command was given {timeout:g} s; allow more before its name: '
      f'saxutil --sax_timeout=10m {command} ...'
    )
  if error.code is _Code.PERMISSION_DENIED and target:
    guarded = _cell_of_model(target) if command == 'publish' else target
    return f'`saxutil getacl {guarded}` names the ACL that has to admit you'
  if error.code is _Code.UNIMPLEMENTED and command == 'setacl':
    return (
      'the cell has no lists yet: write acls.json beside its config.proto, see'
      ' docs/security.md'
    )
  if error.code is _Code.ALREADY_EXISTS and command == 'publish':
    return (
      f'`saxutil update_checkpoint {target} <checkpoint>` changes a published '
      f'model; `saxutil unpublish {target}` frees its name'
    )
  if error.code is _Code.NOT_FOUND and (cell := _cell_of_model(target)):
    return f'`saxutil ls {cell}` lists what is published'
  return ''


def _cell_of_model(target: str) -> str:
  try:
    return ids.parse_model_id(target).cell
  except errors.InvalidArgument:
    return ''
