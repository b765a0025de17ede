"""The name under which LoadGen logs a system on other nodes."""

from collections.abc import Mapping

# The rules of the Network division; the submission checker looks for it.
_REQUIRED = 'Network SUT'


def join(nodes: Mapping[str, str]) -> str:
  """One name for all nodes.

  Args:
    nodes: name by address of every node.

  Raises:
    ValueError: there is no node, or two have the same name.
  """
  if not nodes:
    raise ValueError('a Network SUT has no node; give at least one address')
  seen: dict[str, str] = {}
  for address, name in nodes.items():
    if name in seen:
      raise ValueError(
        f'the nodes {seen[name]} and {address} are both named {name!r}, but'
        ' the rules ask for a name of its own for every node; start one of'
        ' them with another name'
      )
    seen[name] = address
  return f'{_REQUIRED}: {", ".join(seen)}'
