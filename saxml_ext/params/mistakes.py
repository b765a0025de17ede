"""Finds likely mistakes in what somebody publishes, before a server loads it.

It knows the serving params of this code base. Servers with others may join a
cell, so a finding is a warning and not a reason to refuse.
"""

from collections.abc import Mapping

from saxml_ext.common import ids
from saxml_ext.params import all_params  # noqa: F401 Registers them.
from saxml_ext.params import overrides as overrides_lib
from saxml_ext.params import registry
from saxml_ext.params import template


def in_overrides(model_path: str, overrides: Mapping[str, str]) -> list[str]:
  """Returns one message per override that a server leaves out or refuses.

  Args:
    model_path: Registered name of the serving params. Of unknown ones only
      slips in the names of common attributes are found.
    overrides: Attribute name -> value as JSON, or as a bare text.
  """
  known = model_path in registry.names()
  params = registry.lookup(model_path) if known else template.ServableLMParams
  found = overrides_lib.problems(params, overrides)
  return found if known else [text for text in found if 'Did you mean' in text]


def in_path(model_path: str) -> str:
  """Returns a message if a model path looks like a slip, else ''."""
  known = registry.names()
  near = ids.near_misses(model_path, known)
  if model_path in known or not near:
    return ''
  return (
    f'no serving params are known as {model_path}. Did you mean'
    f' {" or ".join(near)}?'
  )
