"""Which known name somebody may have meant who typed another one."""

from collections.abc import Collection
import difflib

_MOST = 3
_CUTOFF = 0.75
# A longer name is no slip of the pen, and would take long to compare.
_MAX_LENGTH = 300


def of(name: str, known: Collection[str]) -> list[str]:
  """Up to three known names that resemble `name`, best first.

  Args:
    name: a dotted name that is not known.
    known: all names that are.
  """
  if len(name) > _MAX_LENGTH:
    return []
  # A class name alone, or under another module, is the usual slip.
  tail = name.rpartition('.')[2].lower()
  ordered = sorted(n for n in known if len(n) <= _MAX_LENGTH)
  same_tail = [n for n in ordered if n.rpartition('.')[2].lower() == tail]
  near = difflib.get_close_matches(name, ordered, n=_MOST, cutoff=_CUTOFF)
  return (same_tail + [n for n in near if n not in same_tail])[:_MOST]
