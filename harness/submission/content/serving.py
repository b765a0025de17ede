"""What a GPT-J result says of the serving params that it was computed with."""

from collections.abc import Mapping
import json
from typing import Any

from harness.results import entry as entry_lib
from harness.rules import requirements
from saxml_ext.common import errors
from saxml_ext.params import all_params  # noqa: F401 Registers them.
from saxml_ext.params import registry

_REFERENCE = 'reference'


def system(entry: entry_lib.Entry) -> Mapping[str, Any]:
  """What decided a result of the system that answered, by flag name."""
  return dict(entry.parameters.get('system', {})) | dict(
    entry.notes.get(entry_lib.SERVED, {})
  )


def attribute(entry: entry_lib.Entry, name: str) -> Any:
  """An attribute of the serving params; None where the result does not tell.

  An override goes before what the params of that name have.

  Args:
    entry: of the result.
    name: such as BEAM_SIZE.
  """
  known = system(entry)
  overrides = known.get('overrides') or {}
  if name in overrides:
    return _value(overrides[name])
  if not known.get('params'):
    return None
  try:
    return getattr(registry.lookup(known['params']), name, None)
  except errors.InvalidArgument:
    return None  # Params of another server.


def beams(entry: entry_lib.Entry) -> int | None:
  """Beams of the search, 1 for none; None where the result does not tell."""
  if entry.system == _REFERENCE:
    return int(system(entry).get('beam_size') or requirements.BEAM_SIZE)
  size = attribute(entry, 'BEAM_SIZE')
  if size is None:
    return None
  return int(size) if attribute(entry, 'USE_BEAM_SEARCH') else 1


def prefix_cache(entry: entry_lib.Entry) -> Any:
  """What of prompts is computed once for all queries; None: nothing is."""
  return attribute(entry, 'PRECOMPUTE_KV_CACHE_PREFIX') or None


def _value(text: Any) -> Any:
  """An override, which is JSON."""
  try:
    return json.loads(text) if isinstance(text, str) else text
  except ValueError:
    return text
