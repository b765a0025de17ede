"""Checks models before they are published or updated."""

from collections.abc import Callable

from saxml_ext.common import errors
from saxml_ext.common import ids
from saxml_ext.common.security import acl_file
from saxml_ext.protobuf import admin_pb2

# A serving template has about a hundred attributes, so this is enough for any
# real model. Each List, and each write of the state, copies all overrides.
MAX_OVERRIDES = 1000
# The form of the status page has the same limit.
MAX_MODEL_BYTES = 256 * 2**10


def check_model(
  model: admin_pb2.Model,
  cell: str,
  check_acl: Callable[[str], None] = acl_file.check_acl_name,
) -> None:
  """Checks every field that a caller sets.

  Args:
    model: The model to publish, or the new version of a published one.
    cell: The cell to which it must belong, "/sax/<cell>".
    check_acl: A function that checks the name of an access control list.

  Raises:
    InvalidArgument: A field is not valid.
    Unimplemented, FailedPrecondition: The list cannot be checked; see
      `access.Access.check_name`.
  """
  ids.check_model_in_cell(model.model_id, cell)
  ids.check_model_path(model.model_path)
  ids.check_checkpoint_path(model.checkpoint_path)
  ids.check_replicas(model.requested_num_replicas)
  if len(model.overrides) > MAX_OVERRIDES:
    raise errors.InvalidArgument(
      f'the model has {len(model.overrides)} overrides, more than the limit of'
      f' {MAX_OVERRIDES}. Publish it with only those that its params need'
    )
  if (size := model.ByteSize()) > MAX_MODEL_BYTES:
    raise errors.InvalidArgument(
      f'the model has {size} bytes of overrides and other settings, more than'
      f' the limit of {MAX_MODEL_BYTES}. Publish it with shorter values'
    )
  check_acl(model.admin_acl)
  acl_file.check_method_acls(model.acls.items, check_acl)
