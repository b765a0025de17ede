"""Defines the flag for the root directory of all cells."""

from absl import flags

from saxml_ext.common import cell

_SAX_ROOT = flags.DEFINE_string(
  'sax_root',
  None,
  "The directory with the cells' configs and locations. Default: $SAX_ROOT.",
)


def sax_root() -> str:
  """Returns the root directory of all cells.

  Raises:
    FailedPrecondition: Neither the flag nor the variable is set.
  """
  return cell.sax_root(_SAX_ROOT.value)
