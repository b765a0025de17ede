"""Reads and sets the ACLs of cells and models."""

from saxml_ext.client import admin_client
from saxml_ext.common import acls
from saxml_ext.common import cell as cell_files
from saxml_ext.common import errors
from saxml_ext.common import ids

# In place of a method's name: every method.
ALL = 'all'


def get_cell_acl(cell: str) -> str:
  """The ACL of a cell's config; "" if there is none."""
  return cell_files.read_config(admin_client.root(), cell).admin_acl


def set_cell_acl(cell: str, acl: str) -> None:
  """Writes the ACL of a cell's config; the admin server reads it again.

  Raises:
    InvalidArgument: the name is empty or malformed.
    Unimplemented: ACLs cannot be looked up.
  """
  ids.parse_cell_id(cell)
  if not acl:
    raise errors.InvalidArgument(
        f'the admin ACL of {cell} cannot be empty: name one, "acl/..."'
    )
  acls.check_acl_name(acl)
  root = admin_client.root()
  config = cell_files.read_config(root, cell)
  ids.check_fs_root(config.fs_root)
  config.admin_acl = acl
  cell_files.write_config(root, cell, config)


def get_model_acl(model_id: str, timeout: float | None) -> str:
  """Who may change a model; "" if everybody."""
  cell = ids.parse_model_id(model_id).cell
  return admin_client.get(cell).list_one(model_id, timeout).model.admin_acl


def get_method_acls(model_id: str, timeout: float | None) -> dict[str, str]:
  """Data method -> who may call it."""
  cell = ids.parse_model_id(model_id).cell
  model = admin_client.get(cell).list_one(model_id, timeout).model
  return dict(model.acls.items)


def set_model_acl(model_id: str, acl: str, timeout: float | None) -> None:
  """Sets who may change a model; "" for everybody."""
  admin = admin_client.get(ids.parse_model_id(model_id).cell)
  model = admin.list_one(model_id, timeout).model
  model.admin_acl = acl
  admin.update(model, timeout)


def set_method_acl(
    model_id: str, method: str, acl: str, timeout: float | None
) -> None:
  """Sets who may call a data method; "" removes the method's entry."""
  acls.check_method(method)
  admin = admin_client.get(ids.parse_model_id(model_id).cell)
  model = admin.list_one(model_id, timeout).model
  # The field is sent also when its map is empty, so that a stored map goes.
  model.acls.SetInParent()
  if acl:
    model.acls.items[method] = acl
  else:
    model.acls.items.pop(method, None)
  admin.update(model, timeout)
