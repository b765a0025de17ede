"""An engine for tests of groups, which records its calls."""

from collections.abc import Mapping
import dataclasses
import threading
from typing import Any

import numpy as np

from saxml_ext.engine import request as request_lib
from saxml_ext.protobuf import modelet_pb2


class NotingRunner:
  """Answers a prompt with its tokens reversed, after one step.

  Attributes:
    num_slots: The number of slots of the engine.
    calls: The recorded calls of the engine, as tuples.
    fail: The exception that the next step raises, if set.
    gate: The event for which each step waits.
    progress: The progress of streaming requests, by slot.
  """

  def __init__(self, num_slots: int = 4):
    self.num_slots = num_slots
    self.calls: list[tuple[Any, ...]] = []
    self.fail: Exception | None = None
    self.gate = threading.Event()
    self.gate.set()
    self.progress: dict[int, Any] = {}
    self._requests: dict[int, request_lib.Request] = {}

  def check(self, request: request_lib.Request) -> None:
    if not len(request.tokens):
      raise ValueError('no tokens')

  def prefill_and_insert(
    self, requests: Mapping[int, request_lib.Request]
  ) -> None:
    for slot, request in requests.items():
      noted = dataclasses.asdict(request)
      noted['tokens'] = request.tokens.tolist()
      self.calls.append(('admit', slot, noted))
    self._requests.update(requests)

  def step(self, max_steps: int | None = None) -> dict[int, Any]:
    self.calls.append(('step', max_steps))
    self.gate.wait()
    if self.fail:
      raise self.fail
    done, self._requests = self._requests, {}
    return {slot: r.tokens[::-1].tolist() for slot, r in done.items()}

  def interrupt(self) -> None:
    self.calls.append(('interrupt',))

  def release(self, slot: int) -> None:
    self.calls.append(('release', slot))
    del self._requests[slot]

  def score(self, prefix: np.ndarray, suffix: np.ndarray) -> float:
    self.calls.append(('score', prefix.tolist(), suffix.tolist()))
    return -float(len(prefix) + 10 * len(suffix))


class NotingPrepared:
  """A prepared model whose engine is a `NotingRunner`.

  Attributes:
    identity: The identity that was given.
    runner: The engine that `start` returns.
  """

  def __init__(self, identity: Mapping[str, str], fail_start: bool = False):
    self.identity = identity
    self.runner = NotingRunner()
    self._fail_start = fail_start

  def start(self) -> NotingRunner:
    if self._fail_start:
      raise MemoryError('no room')
    return self.runner


def prepare(request: modelet_pb2.LoadRequest) -> NotingPrepared:
  """Prepares any model; its identity is its path and checkpoint."""
  return NotingPrepared(
    {'params': request.model_path, 'checkpoint': request.checkpoint_path}
  )
