"""Tells when the first token of an answer is there.

The scheduler learns of an answer when it is whole; nobody behind it can tell
more. So this stands between the scheduler and the engine and sees which slots
have taken their first step.
"""

from collections.abc import Callable, Mapping
import dataclasses
from typing import Any

import numpy as np

from saxml_ext.engine import config as config_lib
from saxml_ext.engine import request as request_lib
from saxml_ext.engine import runner as runner_lib


def certain(engine: config_lib.EngineConfig) -> bool:
  """Whether the first token that is chosen is the answer's.

  Of several beams or samples, the best is known at the end only; with one, all
  hypotheses of a search begin alike unless one may end at once.
  """
  may_end_at_once = engine.search != 'sample' and engine.min_new_tokens < 1
  return engine.num_beams == 1 and not may_end_at_once


@dataclasses.dataclass(frozen=True, eq=False)
class Request(request_lib.Request):
  """A request whose sender wants to know of its first token.

  Attributes:
    on_first_token: called once, on the thread that drives the engine.
  """

  on_first_token: Callable[[], None] = lambda: None


class Runner:
  """An engine as the scheduler knows it; takes requests of this module only.

  A call of the engine decodes several steps, so that a first token is told of
  when the call ends in which it was chosen: not before a client could have it.
  """

  def __init__(self, inner: runner_lib.Runner):
    self._inner = inner
    self.num_slots = inner.num_slots
    self._waiting: dict[int, Request] = {}

  def check(self, request: Request) -> None:
    self._inner.check(request)

  def prefill_and_insert(self, requests: Mapping[int, Request]) -> None:
    self._inner.prefill_and_insert(requests)
    self._waiting.update(requests)

  def step(self, max_steps: int | None = None) -> dict[int, request_lib.Result]:
    results = self._inner.step(max_steps)
    for slot in self._waiting.keys() & (self._inner.decoding | results.keys()):
      self._waiting.pop(slot).on_first_token()
    return results

  @property
  def progress(self) -> Mapping[int, Any]:
    return self._inner.progress

  def interrupt(self) -> None:
    self._inner.interrupt()

  def release(self, slot: int) -> None:
    self._waiting.pop(slot, None)
    self._inner.release(slot)

  def score(self, prefix: np.ndarray, suffix: np.ndarray) -> float:
    return self._inner.score(prefix, suffix)
