"""What a model must look like to be published or updated."""

from collections.abc import Callable

from saxml_ext.common import acls
from saxml_ext.common import ids
from saxml_ext.protobuf import admin_pb2


def check_model(
  model: admin_pb2.Model,
  cell: str,
  check_acl: Callable[[str], None] = acls.check_acl_name,
) -> None:
  """Checks every field that a caller sets.

  Args:
    model: to be published, or to replace a published one.
    cell: the cell that it must belong to, "/sax/<cell>".
    check_acl: checks the name of an ACL.

  Raises:
    InvalidArgument: a field is not valid.
    Unimplemented, FailedPrecondition: ACLs cannot be named, see
      `access.Access.check_name`.
  """
  ids.check_model_in_cell(model.model_id, cell)
  ids.check_model_path(model.model_path)
  ids.check_checkpoint_path(model.checkpoint_path)
  ids.check_replicas(model.requested_num_replicas)
  check_acl(model.admin_acl)
  acls.check_method_acls(model.acls.items, check_acl)
