"""Arranges batches of prompts for the programs that prefill them."""

import dataclasses
from typing import Any

import numpy as np

from saxml_ext.engine import config as config_lib
from saxml_ext.engine import program_keys
from saxml_ext.engine import request as request_lib
from saxml_ext.engine import state
from saxml_ext.engine.attention import slot_parts
from saxml_ext.engine.search import requests as requests_lib


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
