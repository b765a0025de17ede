"""Describes the hosts that computed a cell's model together."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

# The key of a cell's report that holds the hosts of each replica that is a
# group, in the order of their process ids. A host with two processes is listed
# twice.
GROUPS = 'groups'

_NODES = 'number_of_nodes'
_NOTES = 'sw_notes'


def text(served: Mapping[str, Any]) -> str:
  """Returns the groups as a sentence, or '' if there are none.

  Args:
    served: The cell's report about the model that it serves.
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
  """Returns the system description with the number of machines in all groups.

  Several processes on one machine count as one node, because the other figures
  of the description also refer to one machine. A note lists the processes.

  Args:
    description: The official description without the groups.
    given: The keys that the user has set. They are not changed.
    served: The cell's report about the model that it serves.
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
