"""Records the choices of a search's rows, step by step.

Beams change places at every step. Were their tokens moved with them, a step
would cost the more the longer answers may get. Instead each step writes down
what each row chose and which row it continues; an answer is read by going back
from its end, on the host. Log-probabilities of all tokens come with it.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


class Trace(NamedTuple):
  """The choices of the rows of S groups at each of M steps.

  Attributes:
    tokens: [S, M, K] int32, the token of each row.
    parents: [S, M, K] int32, the row of the step before that it continues.
    logprobs: [S, M, K] float32, the token's log-probability there.
    alternatives: the A likeliest tokens after each row of the step before, best
      first, barred or not, and their log-probabilities: [S, M, K, A] int32 and
      float32. None if A is 0.
  """

  tokens: Any
  parents: Any
  logprobs: Any
  alternatives: tuple[Any, Any] | None


class Chosen(NamedTuple):
  """The choices of running rows at one step: [S, K] each, as in `Trace`."""

  tokens: jax.Array
  parents: jax.Array
  logprobs: jax.Array


class Kept(NamedTuple):
  """Answers of S groups, K each; of beams the best first.

  Attributes:
    present: [S, K] bool, False where there is no answer yet.
    scores: [S, K] float32, what the rule ranks them by.
    lengths: [S, K] int32, their tokens, the stop id included.
    last: [S, K] int32, their last tokens.
    logprobs: [S, K] float32, the last tokens' log-probabilities.
    rows: [S, K] int32, the rows that they continue with their last tokens.
  """

  present: Any
  scores: Any
  lengths: Any
  last: Any
  logprobs: Any
  rows: Any


class Path(NamedTuple):
  """Tokens of one answer or row, in the order in which they were chosen.

  tokens [n] int32; logprobs [n] float32; alternatives: ids [n, A] int32 and
  their log-probabilities [n, A] float32; None if A is 0.
  """

  tokens: np.ndarray
  logprobs: np.ndarray
  alternatives: tuple[np.ndarray, np.ndarray] | None


def empty(slots: int, steps: int, rows: int, max_logprobs: int) -> Trace:
  """Returns a trace with nothing written yet. max_logprobs: A."""
  history = jnp.zeros((slots, steps, rows), jnp.int32)
  alternatives = None
  if max_logprobs:
    more = jnp.zeros((*history.shape, max_logprobs), jnp.int32)
    alternatives = more, more.astype(jnp.float32)
  return Trace(history, history, history.astype(jnp.float32), alternatives)


def write(
  trace: Trace,
  step: jax.Array,
  chosen: Chosen,
  alternatives: tuple[jax.Array, jax.Array] | None,
) -> Trace:
  """Returns the trace with one more step.

  Args:
    trace: as it was.
    step: [S] int32, where to write; from M on, nowhere.
    chosen: what to write.
    alternatives: the same, [S, K, A] or, if all rows have the same, [S, 1, A].
  """
  here = jnp.arange(trace.tokens.shape[1]) == step[:, None]

  def put(old: jax.Array, new: jax.Array) -> jax.Array:
    at = here.reshape(here.shape + (1,) * (old.ndim - 2))
    return jnp.where(at, new[:, None], old)

  return jax.tree.map(put, trace, Trace(*chosen, alternatives))


def rows_of(parents: np.ndarray, last: int, row: int, first: int = 0) -> list:
  """Returns the rows whose choices at steps first to last lead to a row.

  Args:
    parents: [M, K] int32 of one group.
    last: the step of that row.
    row: of the step `last`.
    first: the step at which to stop.

  Returns:
    A row for each of the steps, in their order; empty if `last` is below first.
  """
  found = []
  for step in range(last, first - 1, -1):
    found.append(row)
    row = int(parents[step, row])
  return found[::-1]


def path(trace: Trace, kept: Kept, index: int) -> Path:
  """Returns an answer of one group, whose leading axis S is left out."""
  last = int(kept.lengths[index]) - 1
  rows = rows_of(trace.parents, last - 1, int(kept.rows[index]))
  # Alternatives are those of the row that a token continues.
  return Path(
    np.append(pick(trace.tokens, rows), kept.last[index]),
    np.append(pick(trace.logprobs, rows), kept.logprobs[index]),
    trace.alternatives
    and tuple(pick(x, [0, *rows]) for x in trace.alternatives),
  )


def pick(history: np.ndarray, rows: list, first: int = 0) -> np.ndarray:
  """Returns history[first + i, rows[i]] of [M, K, ...]; [len(rows), ...]."""
  steps = np.arange(first, first + len(rows))
  return history[steps, np.asarray(rows, np.int64)]
