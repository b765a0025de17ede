r"""Sets up a Sax cell.

    admin_config --sax_root=/tmp/sax-root --sax_cell=/sax/test \
        --fs_root=/tmp/sax-fs-root

Writes <sax_root>/sax/<cell>/config.proto, and replaces an existing one. The
admin server reads it when it starts. The program prints the path of the file,
and exits with 255 on failure.
"""

from collections.abc import Sequence
import sys

from absl import app
from absl import flags

from saxml_ext.common import cell
from saxml_ext.common import cell_flags
from saxml_ext.common import errors
from saxml_ext.common import program
from saxml_ext.common import user_path
from saxml_ext.protobuf import admin_pb2

# admin_config of other Sax builds exits with this code.
_FAILURE = 255

_SAX_CELL = flags.DEFINE_string(
  'sax_cell',
  None,
  'The cell to set up, for example /sax/test. Default: $SAX_CELL.',
)
_FS_ROOT = flags.DEFINE_string(
  'fs_root',
  None,
  "The directory for the admin server's state. Default: $SAX_FS_ROOT.",
)
_ADMIN_ACL = flags.DEFINE_string(
  'admin_acl', 'acl/all', 'The ACL for changes of the cell. Must not be empty.'
)


def configure(root: str, cell_id: str, fs_root: str, admin_acl: str) -> str:
  """Writes a cell's config and returns its path.

  Raises:
    InvalidArgument: A value is missing or malformed.
    OSError: The file cannot be written.
  """
  for flag, value, example, variable in (
    ('sax_cell', cell_id, '/sax/test', cell.CELL_VARIABLE),
    ('fs_root', fs_root, '/tmp/sax-fs-root', cell.FS_ROOT_VARIABLE),
    ('admin_acl', admin_acl, 'acl/all', ''),
  ):
    if not value:
      or_set = f', or set {variable}' if variable else ''
      raise errors.InvalidArgument(
        f'--{flag} is empty. Set it, for example --{flag}={example}{or_set}'
      )
  cell.write_config(
    root, cell_id, admin_pb2.Config(fs_root=fs_root, admin_acl=admin_acl)
  )
  return cell.config_path(root, cell_id)


def main(argv: Sequence[str]) -> None:
  """Sets up the cell, or exits with 255."""
  if len(argv) > 1:
    raise app.UsageError(f'unknown arguments {" ".join(argv[1:])}', _FAILURE)
  try:
    path = configure(
      cell_flags.sax_root(),
      cell.text_setting(_SAX_CELL.value, cell.CELL_VARIABLE),
      user_path.resolve(
        cell.text_setting(_FS_ROOT.value, cell.FS_ROOT_VARIABLE)
      ),
      _ADMIN_ACL.value,
    )
  except (errors.SaxError, OSError) as e:
    print(f'admin_config: {e}', file=sys.stderr)
    sys.exit(_FAILURE)
  # The words of Sax's guide. Its program logs them, so they go to stderr.
  print(f'Created config {path}', file=sys.stderr)


if __name__ == '__main__':
  program.run(main, takes_words=True)
