"""What a model must look like to be published or updated."""

from saxml_ext.common import acls
from saxml_ext.common import ids
from saxml_ext.protobuf import admin_pb2


def check_model(model: admin_pb2.Model, cell: str) -> None:
  """Checks every field that a caller sets.

  Args:
    model: to be published, or to replace a published one.
    cell: the cell that it must belong to, "/sax/<cell>".

  Raises:
    InvalidArgument: a field is not valid.
    Unimplemented: it names an ACL other than the empty one.
  """
  ids.check_model_in_cell(model.model_id, cell)
  ids.check_model_path(model.model_path)
  ids.check_checkpoint_path(model.checkpoint_path)
  ids.check_replicas(model.requested_num_replicas)
  acls.check_acl_name(model.admin_acl)
  acls.check_method_acls(model.acls.items)
