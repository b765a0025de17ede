"""Records the choices of a search's rows, step by step.

The order of beams changes at every step. If their tokens were moved too, the
cost of a step would grow with the maximum length of answers. Instead each step
records the choice of each row and the row that it continues. The host reads an
answer backward from its last token, together with the log-probabilities of its
tokens.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


class Trace(NamedTuple):
  """The choices of the rows of S groups at each of M steps.

  Attributes:
    tokens: The token of each row, [S, M, K] int32.
    parents: The row of the previous step that each row continues, [S, M, K]
      int32.
    logprobs: The log-probability of each token, [S, M, K] float32.
    alternatives: The A likeliest tokens after each row of the previous step,
      and their log-probabilities, [S, M, K, A] int32 and float32. They are
      sorted, the best first, and include excluded stop ids. None if A is 0.
  """

  tokens: Any
  parents: Any
  logprobs: Any
  alternatives: tuple[Any, Any] | None


class Chosen(NamedTuple):
  """The choices of the running rows at one step, [S, K] each, as in `Trace`."""

  tokens: jax.Array
  parents: jax.Array
  logprobs: jax.Array


class Kept(NamedTuple):
  """The answers of S groups, K each. Beams are sorted, the best first.

  Attributes:
    present: False where there is no answer yet, [S, K] bool.
    scores: The scores by which the rule ranks answers, [S, K] float32.
    lengths: The number of tokens, including the stop id, [S, K] int32.
    last: The last tokens, [S, K] int32.
    logprobs: The log-probabilities of the last tokens, [S, K] float32.
    rows: The rows that the last tokens continue, [S, K] int32.
  """

  present: Any
  scores: Any
  lengths: Any
  last: Any
  logprobs: Any
  rows: Any


class Path(NamedTuple):
  """The tokens of one answer or row, in the order in which they were chosen.

  Attributes:
    tokens: The tokens, [n] int32.
    logprobs: The log-probabilities of the tokens, [n] float32.
    alternatives: The ids [n, A] int32 and their log-probabilities [n, A]
      float32. None if A is 0.
  """

  tokens: np.ndarray
  logprobs: np.ndarray
  alternatives: tuple[np.ndarray, np.ndarray] | None


def empty(slots: int, steps: int, rows: int, max_logprobs: int) -> Trace:
  """Returns an empty trace.

  Args:
    slots: The number of groups, S.
    steps: The number of steps, M.
    rows: The number of rows of a group, K.
    max_logprobs: The number of alternatives for each token, A.
  """
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
  slots: jax.Array | None = None,
) -> Trace:
  """Returns the trace with one more step.

  Args:
    trace: The trace before the step.
    step: The step to write, [S] int32. Steps from M on are not written.
    chosen: The choices to write.
    alternatives: The alternatives to write, [S, K, A]. The shape is [S, 1, A]
      if all rows have the same ones.
    slots: The groups of the trace to write, [S] int32, if it has others too.
      The choices may then be those of the first rows only, and the other steps
      are neither read nor copied. None stands for all groups.
  """
  if slots is not None:

    def put_in_place(old: jax.Array, new: jax.Array) -> jax.Array:
      return old.at[slots, step, : new.shape[1]].set(new, mode='drop')

    return jax.tree.map(put_in_place, trace, Trace(*chosen, alternatives))
  here = jnp.arange(trace.tokens.shape[1]) == step[:, None]

  def put(old: jax.Array, new: jax.Array) -> jax.Array:
    at = here.reshape(here.shape + (1,) * (old.ndim - 2))
    return jnp.where(at, new[:, None], old)

  return jax.tree.map(put, trace, Trace(*chosen, alternatives))


def rows_of(parents: np.ndarray, last: int, row: int, first: int = 0) -> list:
  """Returns the rows whose choices at steps first to last lead to a row.

  Args:
    parents: The parents of one group, [M, K] int32.
    last: The step of that row.
    row: The row at step `last`.
    first: The first step to include.

  Returns:
    One row for each step, in the order of steps. It is empty if `last` is below
    `first`.
  """
  rows = []
  for step in range(last, first - 1, -1):
    rows.append(row)
    row = int(parents[step, row])
  return rows[::-1]


def path(trace: Trace, kept: Kept, index: int) -> Path:
  """Returns an answer of one group; the inputs have no leading axis S."""
  last = int(kept.lengths[index]) - 1
  rows = rows_of(trace.parents, last - 1, int(kept.rows[index]))
  # The alternatives are stored with the row that a token continues.
  return Path(
    np.append(pick(trace.tokens, rows), kept.last[index]),
    np.append(pick(trace.logprobs, rows), kept.logprobs[index]),
    trace.alternatives
    and tuple(pick(x, [0, *rows]) for x in trace.alternatives),
  )


def pick(history: np.ndarray, rows: list, first: int = 0) -> np.ndarray:
  """Returns history[first + i, rows[i]] of [M, K, ...], as [len(rows), ...]."""
  steps = np.arange(first, first + len(rows))
  return history[steps, np.asarray(rows, np.int64)]
