"""What a result says of the hosts that computed a cell's model together."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

# Of what a cell says that it serves: the hosts of each replica that is a group,
# in the order of their process ids. A host with two processes is there twice.
GROUPS = 'groups'

_NODES = 'number_of_nodes'
_NOTES = 'sw_notes'


def text(served: Mapping[str, Any]) -> str:
  """The groups in words; '' where there are none.

  Args:
    served: what a cell says that it serves.
  """
  groups: Sequence[Sequence[str]] = served.get(GROUPS) or ()
  if not groups:
    return ''
  which = ', and by '.join(_words(hosts) for hosts in groups)
  return f'The model was computed by {which}.'


def described(
  description: Mapping[str, Any],
  given: Collection[str],
  served: Mapping[str, Any],
) -> dict[str, Any]:
  """The official description with the number of machines in all groups.

  Several processes on one machine are one node, as the description's other
  figures are those of a machine; a note tells of the processes.

  Args:
    description: as far as it is known without them.
    given: its keys that the user has written, which stay.
    served: what a cell says that it serves.
  """
  described = dict(description)
  names = {name for hosts in served.get(GROUPS) or () for name in hosts}
  if names and _NODES not in given:
    described[_NODES] = str(len(names))
  note = text(served)
  if note and _NOTES not in given:
    before = described.get(_NOTES)
    described[_NOTES] = f'{before}. {note}' if before else note
  return described


def _words(hosts: Sequence[str]) -> str:
  machines, where = len(set(hosts)), ''
  if machines < len(hosts):
    where = ' on one machine' if machines == 1 else f' on {machines} machines'
  return f'a group of {len(hosts)} hosts{where} ({", ".join(hosts)})'
