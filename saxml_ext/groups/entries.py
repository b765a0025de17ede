"""Converts engine calls to entries of the group's log and back."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from saxml_ext.common import request_options
from saxml_ext.engine import request as request_lib
from saxml_ext.groups import group_engine
from saxml_ext.protobuf import group_pb2

_OPTIONS = request_options.PLAIN
_EARLY_STOPPING = request_options.EARLY_STOPPING


def admit(
  model: int, requests: Mapping[int, request_lib.Request]
) -> group_pb2.Entry:
  """Returns the entry of `Runner.prefill_and_insert`; requests need seeds."""
  entry = group_pb2.Entry(model=model)
  for slot, request in requests.items():
    added = entry.admit.slots.add(slot=slot)
    added.request.tokens = _bytes(request.tokens)
    for name in _OPTIONS:
      value = getattr(request, name)
      if value is not None:
        setattr(added.request, name, value)
    added.request.early_stopping = _EARLY_STOPPING.index(request.early_stopping)
    added.request.stream = request.stream
    if request.stop_ids is not None:
      added.request.stop_ids.SetInParent()
      added.request.stop_ids.ids.extend(map(int, request.stop_ids))
  return entry


def step(model: int, max_steps: int | None) -> group_pb2.Entry:
  """Returns the entry of `Runner.step`."""
  return group_pb2.Entry(model=model, step=group_pb2.Step(max_steps=max_steps))


def release(model: int, slot: int) -> group_pb2.Entry:
  """Returns the entry of `Runner.release`."""
  return group_pb2.Entry(model=model, release=group_pb2.Release(slot=slot))


def score(
  model: int, prefix: np.ndarray, suffix: np.ndarray
) -> group_pb2.Entry:
  """Returns the entry of `Runner.score`."""
  return group_pb2.Entry(
    model=model,
    score=group_pb2.Score(prefix=_bytes(prefix), suffix=_bytes(suffix)),
  )


def apply(entry: group_pb2.Entry, runner: group_engine.Runner) -> None:
  """Makes the engine call of an entry and discards its result.

  Raises:
    ValueError: The entry is not an engine call.
  """
  kind = entry.WhichOneof('call')
  if kind == 'step':
    has_limit = entry.step.HasField('max_steps')
    runner.step(entry.step.max_steps if has_limit else None)
  elif kind == 'admit':
    runner.prefill_and_insert(
      {
        admitted.slot: _request(admitted.request)
        for admitted in entry.admit.slots
      }
    )
  elif kind == 'release':
    runner.release(entry.release.slot)
  elif kind == 'score':
    runner.score(_tokens(entry.score.prefix), _tokens(entry.score.suffix))
  else:
    raise ValueError(f'entry {entry.sequence} is {kind}, not an engine call')


def _request(sent: group_pb2.Request) -> request_lib.Request:
  plain: dict[str, Any] = {
    name: getattr(sent, name) if sent.HasField(name) else None
    for name in _OPTIONS
  }
  return request_lib.Request(
    tokens=_tokens(sent.tokens),
    stop_ids=tuple(sent.stop_ids.ids) if sent.HasField('stop_ids') else None,
    early_stopping=_EARLY_STOPPING[sent.early_stopping],
    stream=sent.stream,
    **plain,
  )


def _bytes(tokens: np.ndarray) -> bytes:
  return np.asarray(tokens, '<i4').tobytes()


def _tokens(data: bytes) -> np.ndarray:
  return np.frombuffer(data, '<i4').astype(np.int32)
