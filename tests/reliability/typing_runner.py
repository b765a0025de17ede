"""Defines an engine that answers token by token, with a set time per step.

It replaces the engine in tests where only the speed matters: streams, queues
and deadlines. It writes its calls and their times to a file.
"""

from collections.abc import Mapping
import threading
import time
from typing import IO

import numpy as np

from saxml_ext.engine import request as request_lib


class TypingRunner:
  """A `groups.group_engine.Runner` that repeats a prompt, token by token.

  An answer has as many tokens as the request allows.

  Attributes:
    num_slots: The number of requests decoded together.
    progress: The progress after the last step, by slot of a streaming request.
    interruptible: True if `interrupt` has an effect.
  """

  def __init__(
    self,
    num_slots: int,
    checks: request_lib.Checks,
    step_secs: float = 0.0,
    notes: str | None = None,
    fail_after: int | None = None,
  ):
    """Stores the arguments.

    Args:
      num_slots: The number of requests in a step.
      checks: The checks of the engine that it replaces.
      step_secs: The duration of a step, for any number of requests.
      notes: The path of the file that gets the lines "admit PROMPT", "step",
        "release", "interrupt" and "fail", each after the monotonic time.
      fail_after: The number of answers before the engine fails; None for no
        failure.
    """
    self.num_slots = num_slots
    self.interruptible = True
    self.progress: Mapping[int, request_lib.Progress] = {}
    self._checks = checks
    self._step_secs = step_secs
    self._left = fail_after
    self._running: dict[int, request_lib.Request] = {}
    self._made: dict[int, int] = {}
    self._interrupted = threading.Event()
    self._notes: IO[str] | None = None
    if notes:
      self._notes = open(notes, 'a', encoding='ascii', buffering=1)

  def check(self, request: request_lib.Request) -> None:
    self._checks.request(request)

  def prefill_and_insert(
    self, requests: Mapping[int, request_lib.Request]
  ) -> None:
    for slot, request in requests.items():
      if slot in self._running:
        raise ValueError(f'slot {slot} is occupied')
      self._running[slot] = request
      self._made[slot] = 0
      self._note(f'admit {",".join(map(str, request.tokens[:8].tolist()))}')

  def step(self, max_steps: int | None = None) -> dict[int, request_lib.Result]:
    done: dict[int, request_lib.Result] = {}
    steps = 0
    while not done and (max_steps is None or steps < max_steps):
      self._note('step')
      if self._step_secs:
        time.sleep(self._step_secs)
      steps += 1
      for slot, request in self._running.items():
        self._made[slot] += 1
        if self._made[slot] >= self._length(request):
          done[slot] = self._result(slot)
      if self._interrupted.is_set():
        break
    if self._left is not None:
      self._left -= len(done)
      if self._left < 0:
        self._note('fail')
        raise RuntimeError('this engine was made to fail')
    # An interrupt from before this call has ended it after its first step.
    self._interrupted.clear()
    for slot in done:
      self._remove(slot)
    self.progress = {
      slot: request_lib.Progress((self._partial(slot),))
      for slot, request in self._running.items()
      if getattr(request, 'stream', False)
    }
    return done

  def interrupt(self) -> None:
    """Ends the call of `step` in progress after its current step."""
    self._interrupted.set()
    self._note('interrupt')

  def release(self, slot: int) -> None:
    self._remove(slot)
    self._note('release')

  def score(self, prefix: np.ndarray, suffix: np.ndarray) -> float:
    return -float(len(prefix) + len(suffix))

  def _remove(self, slot: int) -> None:
    del self._running[slot], self._made[slot]

  def _length(self, request: request_lib.Request) -> int:
    return request.max_new_tokens or self._checks.engine.max_new_tokens

  def _tokens(self, slot: int) -> np.ndarray:
    prompt = np.asarray(self._running[slot].tokens, np.int32)
    return np.resize(prompt, self._made[slot])

  def _partial(self, slot: int) -> request_lib.Partial:
    return request_lib.Partial(
      tokens=self._tokens(slot),
      finished=False,
      score=-float(self._made[slot]),
      token_logprobs=None,
      alternatives=None,
    )

  def _result(self, slot: int) -> request_lib.Result:
    logprob = -float(self._made[slot])
    hypothesis = request_lib.Hypothesis(self._tokens(slot), logprob, logprob)
    return request_lib.Result((hypothesis,))

  def _note(self, text: str) -> None:
    if self._notes:
      self._notes.write(f'{time.monotonic():.6f} {text}\n')
