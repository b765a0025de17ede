"""Finds the tokens of running searches that can no longer change.

A device program reports the choices of each group in its newest steps; see
`progress`. `Stream` combines these reports for one request. A reported token
stays valid: each answer continues the tokens that were reported before.

Every token of a sample is certain at once. For beams, the certain tokens are
those that all rows from which the best answer may come have in common:

- The best kept hypothesis, because the other kept hypotheses cannot improve.
- The running beams, unless they certainly cannot beat it. Sums of
  log-probabilities only fall. So a beam's score is at most its sum divided by
  the largest divisor still to come. That divisor belongs either to the next
  length or to the maximum length.

Excluded rows stay excluded, and so do the rows that continue them. A new best
hypothesis always comes from an included row. So the common beginning never gets
shorter.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from saxml_ext.engine.search import search
from saxml_ext.engine.search import trace as trace_lib


class Progress(NamedTuple):
  """The progress of the searches of S groups; [S, ...] or of one group [...].

  Attributes:
    step: The number of tokens generated so far, [S] int32.
    recent: The trace of the newest W steps, or of the first W steps, [S, W,
      ...].
    first: The first step in `recent`, [S] int32.
    kept: The answers, [S, K].
    hopeful: True for running rows from which the best answer may come, [S, K]
      bool.
  """

  step: Any
  recent: trace_lib.Trace
  first: Any
  kept: trace_lib.Kept
  hopeful: Any


def progress(state: search.State, window: int) -> Progress:
  """Returns the progress of all groups.

  Args:
    state: The state after a step.
    window: The number of steps to report, W, at most M.
  """
  first = jnp.maximum(state.step - window, 0)
  steps = first[:, None] + jnp.arange(window)

  def recent(x: jax.Array) -> jax.Array:
    index = steps.reshape(steps.shape + (1,) * (x.ndim - 2))
    return jnp.take_along_axis(x, index, 1, mode='clip')

  options = state.options
  norm = jnp.maximum(
    search.norm_at(options, state.step + 1),
    search.norm_at(options, options.max_new),
  )
  best = state.kept.scores[:, :1]
  beaten = state.kept.present[:, :1] & (state.scores / norm <= best)
  hopeful = ~beaten & (state.scores > search.LOST)
  hopeful &= ~search.unused(options, state.scores.shape[1])
  return Progress(
    state.step, jax.tree.map(recent, state.trace), first, state.kept, hopeful
  )


class _Row:
  """The certain beginning of an answer, which only grows."""

  def __init__(self) -> None:
    self.row = 0  # The row at the last certain step.
    self.finished = False
    self._tokens: list[int] = []
    self._logprobs: list[float] = []
    self._alternatives: list[tuple[np.ndarray, np.ndarray]] = []

  def __len__(self) -> int:
    return len(self._tokens)

  def add(self, choices: trace_lib.Trace, row: int) -> None:
    """Appends the choice of `row` at one step to the answer.

    Args:
      choices: The choices of all rows at that step, [K, ...].
      row: The row to append.
    """
    self._tokens.append(int(choices.tokens[row]))
    self._logprobs.append(float(choices.logprobs[row]))
    if choices.alternatives is not None:
      ids, logprobs = choices.alternatives
      self._alternatives.append((ids[self.row], logprobs[self.row]))
    self.row = row

  def path(self) -> trace_lib.Path:
    alternatives = None
    if self._alternatives:
      ids, logprobs = zip(*self._alternatives)
      alternatives = np.stack(ids), np.stack(logprobs)
    return trace_lib.Path(
      np.asarray(self._tokens, np.int32),
      np.asarray(self._logprobs, np.float32),
      alternatives,
    )


class Stream:
  """The certain tokens of the answers to one request."""

  def __init__(self, rows: int, sampled: bool):
    """Creates a stream without tokens.

    Args:
      rows: The number of beams or samples of the request.
      sampled: True if the rows are samples.
    """
    self._sampled = sampled
    self._step = 0  # The number of steps received.
    self._open: list[
      trace_lib.Trace
    ] = []  # The newest steps that are not certain yet.
    self._rows = [_Row() for _ in range(rows if sampled else 1)]

  def update(self, progress: Progress) -> None:
    """Updates the stream by the progress of this group, without the axis S.

    Raises:
      ValueError: The group has made more steps since the last update than
        `progress` reports.
    """
    first, step = int(progress.first), int(progress.step)
    if first > self._step:
      raise ValueError(
        f'steps {self._step} to {first} of a stream were never reported.'
      )
    for i in range(self._step - first, step - first):
      self._open.append(jax.tree.map(lambda x, i=i: x[i], progress.recent))
    self._step = step
    if self._sampled:
      self._draw(progress.kept)
    else:
      self._agree(progress)

  def paths(self) -> tuple[tuple[trace_lib.Path, bool], ...]:
    """Returns (path, finished) pairs: one for beams, or one per sample."""
    return tuple((row.path(), row.finished) for row in self._rows)

  def _draw(self, kept: trace_lib.Kept) -> None:
    """Appends the tokens that were drawn to each sample."""
    for index, row in enumerate(self._rows):
      ended = bool(kept.present[index])
      until = int(kept.lengths[index]) if ended else self._step
      begin = self._step - len(self._open)
      for choices in self._open[len(row) - begin : until - begin]:
        row.add(choices, index)
      row.finished = ended
    self._open.clear()

  def _agree(self, progress: Progress) -> None:
    """Appends the tokens that all hopeful beams share now."""
    (certain,) = self._rows
    rows = set(np.flatnonzero(progress.hopeful).tolist())
    # The best hypothesis left the beams at the step after `left`.
    left = None
    if progress.kept.present[0]:
      left = int(progress.kept.lengths[0]) - 2
    shared: list[int] = []
    for step in range(self._step - 1, len(certain) - 1, -1):
      if step == left:
        rows.add(int(progress.kept.rows[0]))
        left = None
      if len(rows) == 1 and left is None:
        shared.extend(rows)
      parents = self._open[step - len(certain)].parents
      rows = {int(parents[row]) for row in rows}
    for row in reversed(shared):
      certain.add(self._open.pop(0), row)
