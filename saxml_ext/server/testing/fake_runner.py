"""A fake engine for tests, which answers a prompt with its reversed tokens.

If an answer is streamed, each step adds one token to it.
"""

from collections.abc import Mapping
import dataclasses
import threading
import time
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True)
class Request:
  """A prompt [T] int32; the scheduler reads no other field."""

  tokens: np.ndarray


@dataclasses.dataclass(frozen=True)
class Hypothesis:
  """A finished answer, with the fields of the engine's `Hypothesis`."""

  tokens: np.ndarray
  score: float
  logprob: float
  token_logprobs: np.ndarray | None = None
  alternatives: tuple[np.ndarray, np.ndarray] | None = None
  row: int = 0


@dataclasses.dataclass(frozen=True)
class Partial:
  """An unfinished answer, with the fields of the engine's `Partial`."""

  tokens: np.ndarray
  finished: bool = False
  score: float = 0.0
  token_logprobs: np.ndarray | None = None
  alternatives: tuple[np.ndarray, np.ndarray] | None = None


@dataclasses.dataclass(frozen=True)
class Progress:
  """The progress of a request, with the fields of the engine's `Progress`."""

  rows: tuple[Partial, ...]


@dataclasses.dataclass(frozen=True)
class Result:
  """The result of a request, with the fields of the engine's `Result`."""

  hypotheses: tuple[Hypothesis, ...]


class FakeRunner:
  """A fake engine that checks its contract and records every call.

  Each request takes the same number of steps. Misuse, such as admission to an
  occupied slot, raises AssertionError.

  Attributes:
    admissions: The requests of each prefill_and_insert call, in slot order.
    released: The released slots, in order.
    steps: The number of step calls.
    max_steps: The argument of each step call.
    threads: The names of the threads that called.
    gate: The event for which each step waits.
    step_secs: The minimum time of a step in seconds.
    permits: A semaphore that each step acquires, if set.
    interrupts: The number of interrupt calls.
    progress: The progress of streaming requests, by slot.
    fail_on_step: The exception that the next step raises, if set.
  """

  def __init__(
    self, num_slots: int = 2, steps: int = 1, rows: int = 1, repeat: int = 1
  ):
    """Creates an engine with free slots.

    Args:
      num_slots: The number of slots.
      steps: The number of steps that each request takes.
      rows: The number of rows of a progress: 1 like beams, or 2 like samples.
      repeat: The number of times that an answer repeats the prompt.
    """
    self.num_slots = num_slots
    self.max_prompt = 512
    self.admissions: list[list[Any]] = []
    self.released: list[int] = []
    self.steps = 0
    self.max_steps: list[int | None] = []
    self.threads: set[str] = set()
    self.gate = threading.Event()
    self.gate.set()
    self.fail_on_step: Exception | None = None
    self.step_secs = 0.0
    self.permits: threading.Semaphore | None = None
    self.interrupts = 0
    self.progress: dict[int, Progress] = {}
    self._steps_per_request = steps
    self._rows = rows
    self._repeat = repeat
    self._left: dict[int, int] = {}
    self._requests: dict[int, Any] = {}

  def check(self, request: Any) -> None:
    if getattr(request, 'temperature', None) == -1:
      raise ValueError('temperature is -1, but must be at least 0')

  def prefill_and_insert(self, requests: Mapping[int, Any]) -> None:
    self.threads.add(threading.current_thread().name)
    self.admissions.append([requests[slot] for slot in sorted(requests)])
    for slot, request in requests.items():
      assert 0 <= slot < self.num_slots, slot
      assert slot not in self._requests, f'slot {slot} is occupied'
      self._requests[slot] = request
      self._left[slot] = self._steps_per_request

  def step(self, max_steps: int | None = None) -> dict[int, Result]:
    self.max_steps.append(max_steps)
    self.threads.add(threading.current_thread().name)
    assert self._requests, 'a step without work'
    self.gate.wait(timeout=600)
    if self.step_secs:
      time.sleep(self.step_secs)
    if self.permits is not None:
      self.permits.acquire(timeout=600)
    self.steps += 1
    if self.fail_on_step is not None:
      raise self.fail_on_step
    done = {}
    for slot in list(self._requests):
      self._left[slot] -= 1
      if not self._left[slot]:
        done[slot] = self._answer(self._requests.pop(slot))
    self.progress = {
      slot: self._progress(slot, self._answer(request))
      for slot, request in self._requests.items()
      if getattr(request, 'stream', False)
    }
    return done

  def _progress(self, slot: int, result: Result) -> Progress:
    passed = self._steps_per_request - self._left[slot]
    answers = sorted(result.hypotheses, key=lambda h: h.row)[: self._rows]
    return Progress(
      tuple(
        Partial(h.tokens[: self._known(len(h.tokens), passed)], score=-0.125)
        for h in answers
      )
    )

  def _known(self, tokens: int, passed: int) -> int:
    return max(passed, tokens * passed // self._steps_per_request)

  def _answer(self, request: Any) -> Result:
    best = np.tile(request.tokens[::-1], self._repeat)
    return Result(
      (
        Hypothesis(best, score=-1.0, logprob=-1.0, row=self._rows - 1),
        Hypothesis(
          request.tokens[:1], score=-2.0, logprob=-2.0, row=2 - self._rows
        ),
      )
    )

  def interrupt(self) -> None:
    self.interrupts += 1

  def release(self, slot: int) -> None:
    self.threads.add(threading.current_thread().name)
    assert slot in self._requests, f'slot {slot} is free'
    del self._requests[slot]
    self.released.append(slot)

  def score(self, prefix: np.ndarray, suffix: np.ndarray) -> float:
    self.threads.add(threading.current_thread().name)
    return -float(len(prefix) + 10 * len(suffix))

  def embed(self, tokens: np.ndarray) -> np.ndarray:
    self.threads.add(threading.current_thread().name)
    return tokens.astype(np.float32) / 2

  def gradient(
    self, prefix: np.ndarray, suffix: np.ndarray
  ) -> tuple[float, dict[str, np.ndarray]]:
    joined = np.concatenate([prefix, suffix]).astype(np.float32)
    return self.score(prefix, suffix), {
      'embeddings': np.stack([joined, -joined], 1)
    }

  def admitted(self) -> list[list[int]]:
    """Returns the prompts of all admissions, in order."""
    return [r.tokens.tolist() for batch in self.admissions for r in batch]
