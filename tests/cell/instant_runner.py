"""Defines an engine that answers at once, to measure everything else."""

from collections.abc import Mapping
import time
from typing import Any

import numpy as np

from saxml_ext.engine import request as request_lib

# The mean length of GPT-J's answers in the benchmark, in tokens.
ANSWER_TOKENS = 69
_BEAMS = 4


def answer(tokens: np.ndarray) -> np.ndarray:
  """Returns the answer to a prompt [T]: up to ANSWER_TOKENS of its tokens."""
  return tokens[:ANSWER_TOKENS]


class InstantRunner:
  """A `groups.group_engine.Runner` that answers every request in one step."""

  def __init__(
    self, num_slots: int, step_secs: float = 0.0, completed: str | None = None
  ):
    """Stores the arguments.

    Args:
      num_slots: The number of requests in a step.
      step_secs: The duration of a step.
      completed: The path of the file that gets a line for each answered prompt.
    """
    self.num_slots = num_slots
    self.progress: dict[int, Any] = {}  # No answer is ever incomplete.
    self._completed = completed
    self._step_secs = step_secs
    self._admitted: dict[int, request_lib.Request] = {}

  def check(self, request: request_lib.Request) -> None:
    if not len(request.tokens):
      raise ValueError('the prompt is empty')

  def prefill_and_insert(
    self, requests: Mapping[int, request_lib.Request]
  ) -> None:
    taken = self._admitted.keys() & requests.keys()
    if taken:
      raise ValueError(f'slots {sorted(taken)} are occupied')
    self._admitted.update(requests)

  def step(self, max_steps: int | None = None) -> dict[int, request_lib.Result]:
    if self._step_secs:
      time.sleep(self._step_secs)
    done = {slot: _result(r.tokens) for slot, r in self._admitted.items()}
    if self._completed:
      lines = [f'{r.tokens.tolist()}\n' for r in self._admitted.values()]
      # Several processes append to the file, so all lines are written at once.
      with open(self._completed, 'a', encoding='ascii') as file:
        file.write(''.join(lines))
    self._admitted.clear()
    return done

  def interrupt(self) -> None:
    """Does nothing, because a step is short."""

  def release(self, slot: int) -> None:
    del self._admitted[slot]

  def score(self, prefix: np.ndarray, suffix: np.ndarray) -> float:
    return -float(len(prefix) + len(suffix))


def _result(tokens: np.ndarray) -> request_lib.Result:
  tokens = answer(tokens)
  return request_lib.Result(
    tuple(request_lib.Hypothesis(tokens, -1.0 - i, -1.0) for i in range(_BEAMS))
  )
