"""Says that no model server can serve a model path, and what may be meant."""

import functools

from saxml_ext.common import ids

# The same few paths are asked for with every listing of a cell.
_CACHED = 1024
# Names to show where none is near.
_EXAMPLES = 3


@functools.lru_cache(_CACHED)
def explain(path: str, servable: frozenset[str]) -> str:
  """Why a model of this path is loaded nowhere.

  Args:
    path: model path of a published model.
    servable: model paths that the joined servers can serve.

  Returns:
    A clause for messages; '' if a server can serve the path, or as long as
    nothing is known of what servers can serve.
  """
  if not servable or path in servable:
    return ''
  near = ids.near_misses(path, servable)
  if near:
    hint = f'did you mean {" or ".join(near)}?'
  else:
    some = sorted(servable)[:_EXAMPLES]
    hint = f'they can serve {len(servable)} others, such as {", ".join(some)}'
  return f'no joined model server can serve the model path {path}; {hint}'
