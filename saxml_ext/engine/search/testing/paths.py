"""Reads the answers of a search, for tests."""

import jax

from saxml_ext.engine.search import search
from saxml_ext.engine.search import trace as trace_lib


def kept(state: search.State, group: int) -> list[tuple[trace_lib.Path, float]]:
  """Returns the answers of a group with their scores, in the state's order."""
  arrays = jax.tree.map(
    lambda x: jax.device_get(x)[group], (state.kept, state.trace)
  )
  answers, trace = arrays
  return [
    (trace_lib.path(trace, answers, i), float(answers.scores[i]))
    for i in range(len(answers.present))
    if answers.present[i]
  ]
