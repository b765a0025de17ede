"""Arranges batches of prompts for the programs that prefill them."""

from collections.abc import Callable, Mapping
import dataclasses
import itertools
from typing import Any

import numpy as np

from saxml_ext.engine import config as config_lib
from saxml_ext.engine import program_keys
from saxml_ext.engine import request as request_lib
from saxml_ext.engine import state
from saxml_ext.engine.attention import slot_parts
from saxml_ext.engine.search import requests as requests_lib

# The tokens that a call with fewer counts as. At an H200's rates, reading a
# weight takes as long as computing its product with about 180 tokens.
_LEAST_TOKENS = 256


@dataclasses.dataclass(frozen=True)
class Prefill:
  """A batch of prompts, and their chunks that are not prefilled yet.

  Attributes:
    requests: The requests by slot.
    chunks: The chunks as (start, end) pairs, at least one.
  """

  requests: dict[int, request_lib.Request]
  chunks: tuple[tuple[int, int], ...]

  @property
  def rest(self) -> 'Prefill | None':
    """The batch after its next chunk; None if no chunk is left then."""
    rest = self.chunks[1:]
    return Prefill(self.requests, rest) if rest else None

  def call(
    self, engine: config_lib.EngineConfig, batches: slot_parts.Batches
  ) -> tuple[
    program_keys.PrefillAndInsert | program_keys.PrefillChunk, tuple[Any, ...]
  ]:
    """Returns the program of the next chunk, and its arguments after the state.

    Args:
      engine: The settings of the engine.
      batches: The rules for the rows of a batch.
    """
    (start, end), *rest = self.chunks
    *_, (_, last) = self.requests.items()
    filled = [
      (slot, self.requests.get(slot, last))
      for slot in batches.rows(list(self.requests))
    ]
    rows = len(filled)
    tokens = np.full((rows, end - start), engine.pad_id, np.int32)
    for row, (_, request) in enumerate(filled):
      part = request.tokens[start:end]
      tokens[row, : len(part)] = part
    slots = np.asarray([slot for slot, _ in filled], np.int32)
    at: tuple[np.int32, ...] = ()
    if engine.max_context:  # One program prefills at any position.
      at, start, end = (np.int32(start),), 0, end - start
    if rest:
      return program_keys.PrefillChunk(rows, start, end), (tokens, slots, *at)
    requests = [request for _, request in filled]
    lengths = np.asarray([len(r.tokens) for r in requests], np.int32)
    options = requests_lib.options(requests, engine)
    prompts = state.Prompts(tokens, lengths, slots, options)
    return program_keys.PrefillAndInsert(rows, start, end), (prompts, *at)


@dataclasses.dataclass(frozen=True)
class Pack:
  """Prompts that are prefilled in one row.

  Attributes:
    requests: The requests by slot.
    key: The program.
  """

  requests: dict[int, request_lib.Request]
  key: program_keys.PrefillPacked
  rest = None

  def call(
    self, engine: config_lib.EngineConfig, unused_batches: object
  ) -> tuple[program_keys.PrefillPacked, tuple[Any, ...]]:
    """Returns the program and its arguments, as `Prefill.call` does."""
    requests = list(self.requests.values())
    unused = self.key.prompts - len(requests)
    tokens = np.full((1, self.key.tokens), engine.pad_id, np.int32)
    joined = np.concatenate([request.tokens for request in requests])
    tokens[0, : joined.size] = joined
    lengths = [*(len(r.tokens) for r in requests), *[0] * unused]
    slots = [*self.requests, *[engine.num_slots] * unused]
    options = requests_lib.options([*requests, *requests[-1:] * unused], engine)
    return self.key, (
      state.Prompts(
        tokens,
        np.asarray(lengths, np.int32),
        np.asarray(slots, np.int32),
        options,
      ),
    )


def pack(
  requests: Mapping[int, request_lib.Request],
  engine: config_lib.EngineConfig,
  is_ready: Callable[[state.Key], bool],
) -> list[Pack]:
  """Returns the rows of those prompts that are better prefilled together.

  A row has as many of the next prompts as fit, if single calls would compute
  at least as many tokens.

  Args:
    requests: The requests by slot, in order of arrival.
    engine: The settings of the engine.
    is_ready: The function that returns True for programs that can be used.
  """
  if not engine.prefill_tokens:
    return []
  keys = [key for key in program_keys.packs(engine)[::-1] if is_ready(key)]
  most = keys[0].tokens if keys else 0
  waiting = [
    (slot, request)
    for slot, request in requests.items()
    if len(request.tokens) <= most
  ]
  result = []
  while waiting:
    count = 1
    for key in keys:
      some = [request for _, request in waiting[: key.prompts]]
      ends = itertools.accumulate(len(request.tokens) for request in some)
      fitting = sum(end <= key.tokens for end in ends)
      alone = sum(_cost(request, engine) for request in some[:fitting])
      if fitting > 1 and key.tokens <= alone:
        result.append(Pack(dict(waiting[:fitting]), key))
        count = fitting
        break
    waiting = waiting[count:]
  return result


def _cost(request: request_lib.Request, engine: config_lib.EngineConfig) -> int:
  """Returns the number of tokens that a call for one prompt takes as long as."""
  return max(_LEAST_TOKENS, engine.padded(len(request.tokens)))
