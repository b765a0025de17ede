"""Reads and writes the three files of a cell.

    <sax_root>/sax/<cell>/config.proto     the settings of the cell
    <sax_root>/sax/<cell>/location.proto   the address of its admin server
    <fs_root>/sax/<cell>/state.proto       the models that it publishes

All three are in protobuf's binary format. A cell is given as "/sax/<cell>".
Protobuf also parses an empty file, and one that was cut between two fields. So
a config without all of its fields is refused, and never written.
"""

import os
from typing import TypeVar

from google.protobuf import message

from saxml_ext.common import errors
from saxml_ext.common import files
from saxml_ext.common import ids
from saxml_ext.common import storage
from saxml_ext.common import user_path
from saxml_ext.protobuf import admin_pb2

# These variables are read if the flags are not given, because published setups
# of Sax export them.
ROOT_VARIABLE = 'SAX_ROOT'
CELL_VARIABLE = 'SAX_CELL'
FS_ROOT_VARIABLE = 'SAX_FS_ROOT'
ADMIN_PORT_VARIABLE = 'SAX_ADMIN_SERVER_PORT'
_MAX_PORT = 65535
# `saxutil create` of other Sax builds writes a sentence instead of an address.
_NEVER_STARTED = 'not been started'
# The limit of a config or location, each of which has two short texts at most.
_MAX_BYTES = 2**16
# The limit of the file with all models. `cell_state` refuses models long before.
MAX_STATE_BYTES = 2**28

_Message = TypeVar('_Message', bound=message.Message)


def sax_root(flag_value: str | None = None) -> str:
  """Returns the root directory of all cells.

  Args:
    flag_value: The value of --sax_root, if any.

  Returns:
    The flag's value, or else the environment variable SAX_ROOT; see
    `user_path`.

  Raises:
    FailedPrecondition: Neither is set.
  """
  root = flag_value or os.environ.get(ROOT_VARIABLE, '')
  if not root:
    raise errors.FailedPrecondition(
      f'the Sax root is not set. Set --sax_root=<dir> or {ROOT_VARIABLE}'
    )
  return user_path.resolve(root)


def cell_dir(root: str, cell: str) -> str:
  """Returns the directory of a cell under `sax_root` or `fs_root`.

  Raises:
    InvalidArgument: The root is empty, or the cell is not the id of one.
  """
  if not root:
    raise errors.InvalidArgument(
      f'the root directory of {cell} is empty. Set --sax_root and --fs_root'
    )
  return f'{root.rstrip("/")}{ids.parse_cell_id(cell)}'


def config_path(root: str, cell: str) -> str:
  """Returns the path of a cell's config under `sax_root`."""
  return cell_dir(root, cell) + '/config.proto'


def location_path(root: str, cell: str) -> str:
  """Returns the path of a cell's location under `sax_root`."""
  return cell_dir(root, cell) + '/location.proto'


def state_path(fs_root: str, cell: str) -> str:
  """Returns the path of a cell's state under `fs_root`."""
  return cell_dir(fs_root, cell) + '/state.proto'


def _read_bytes(path: str) -> bytes:
  try:
    return storage.read_bytes(path, _MAX_BYTES, check=files.check_owner)
  except files.UnusableFileError as e:
    raise errors.Internal(str(e)) from e


def _parse(data: bytes, path: str, result: _Message) -> _Message:
  try:
    result.ParseFromString(data)
  except message.DecodeError as e:
    raise errors.Internal(
      f'{path} ({len(data)} bytes) is not a {result.DESCRIPTOR.full_name} in'
      ' binary format. Restore it from a copy or write it again'
    ) from e
  return result


def _write(path: str, value: message.Message) -> None:
  storage.make_dirs(os.path.dirname(path))
  storage.write_bytes(path, value.SerializeToString(deterministic=True))


def _check_dir(root: str, cell: str) -> None:
  path = cell_dir(root, cell)
  if not storage.is_dir(path):
    raise errors.FailedPrecondition(
      f'"{path}" is not a directory. Create the cell with admin_config, or'
      ' set another --sax_root'
    )


def read_config(root: str, cell: str) -> admin_pb2.Config:
  """Reads a cell's config.

  Raises:
    FailedPrecondition: The cell was never created.
    NotFound: The cell's directory has no config.
    Internal: The file is damaged or incomplete.
  """
  _check_dir(root, cell)
  path = config_path(root, cell)
  return parse_config(_read_bytes(path), path)


def parse_config(data: bytes, path: str) -> admin_pb2.Config:
  """Parses the contents of a config; see `read_config` for the errors."""
  config = _parse(data, path, admin_pb2.Config())
  if name := _incomplete(config):
    raise errors.Internal(
      f'{path} ({len(data)} bytes) has no valid {name}, so it is damaged or'
      ' incomplete. Restore it from a copy, or write it again with admin_config'
      ' --fs_root and --admin_acl'
    )
  return config


def _incomplete(config: admin_pb2.Config) -> str:
  """Returns the name of a field without a valid value, or ''."""
  values = {'fs_root': config.fs_root, 'admin_acl': config.admin_acl}
  bad = [n for n, text in values.items() if not text or not text.isprintable()]
  return bad[0] if bad else ''


def write_config(root: str, cell: str, config: admin_pb2.Config) -> None:
  """Writes a cell's config, creating the cell's directory.

  Raises:
    InvalidArgument: A field is empty or not printable. Nothing was written.
  """
  if name := _incomplete(config):
    raise errors.InvalidArgument(
      f'the {name} of {cell} must be printable text, and not empty'
    )
  _write(config_path(root, cell), config)


def read_location(root: str, cell: str) -> admin_pb2.Location:
  """Reads the address of a cell's admin server.

  Raises:
    FailedPrecondition: The cell was never created, or no admin server was ever
      started for it.
    Internal: The file is corrupt.
  """
  _check_dir(root, cell)
  try:
    path = location_path(root, cell)
    location = _parse(_read_bytes(path), path, admin_pb2.Location())
  except errors.NotFound as e:
    raise errors.FailedPrecondition(
      f'no admin server of {cell} was ever started:'
      f' {location_path(root, cell)} does not exist. Start admin_server'
      f' --sax_cell={cell}, or set another --sax_root'
    ) from e
  address = location.location
  if not address or _NEVER_STARTED in address or ':' not in address:
    raise errors.FailedPrecondition(
      f'{path} has {ids.quote(address)} instead of the address of'
      f' an admin server. Start admin_server --sax_cell={cell}'
    )
  return location


def write_location(root: str, cell: str, location: admin_pb2.Location) -> None:
  """Writes the address of a cell's admin server."""
  _write(location_path(root, cell), location)


def list_cells(root: str) -> list[str]:
  """Returns the ids of the cells under `sax_root`, sorted.

  Raises:
    NotFound: The root does not exist.
  """
  names = storage.list_dir(root.rstrip('/') + '/sax')
  return [f'/sax/{name}' for name in names]


def text_setting(flag_value: str | None, variable: str) -> str:
  """Returns the flag's value, or else the variable's value, or else ''."""
  return flag_value or os.environ.get(variable, '')


def cell_setting(flag_value: str | None) -> str:
  """Returns the cell from --sax_cell, or else from the environment.

  Args:
    flag_value: The value of the flag, if any.

  Raises:
    InvalidArgument: Neither is set.
  """
  if not (cell := text_setting(flag_value, CELL_VARIABLE)):
    raise errors.InvalidArgument(
      f'set --sax_cell, for example /sax/test, or set {CELL_VARIABLE}'
    )
  return cell


def port_setting(flag_value: int | None, variable: str, default: int) -> int:
  """Returns a TCP port from a flag, or else from an environment variable.

  Args:
    flag_value: The value of the flag, if any.
    variable: The name of the environment variable.
    default: The port if neither is set.

  Raises:
    InvalidArgument: The variable is not a port number.
  """
  if flag_value is not None:
    return flag_value
  text = os.environ.get(variable, '')
  if not text:
    return default
  if not text.isascii() or not text.isdigit() or int(text) > _MAX_PORT:
    raise errors.InvalidArgument(
      f'the environment variable {variable}="{text}" is not a port. Set it to'
      f' a number from 0 to {_MAX_PORT}, or set --port'
    )
  return int(text)
