"""Host side of the engine: slots, programs, and what is live.

The scheduler owns a Runner and is the only one to call it; nothing here takes
a lock.
"""

from collections.abc import Callable, Mapping
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from saxml_ext.engine import cache
from saxml_ext.engine import config as config_lib
from saxml_ext.engine import executables
from saxml_ext.engine import programs
from saxml_ext.engine import weights as weights_lib


@dataclasses.dataclass(frozen=True)
class Request:
  """A prompt and the limits of its answer.

  tokens [T] int32; None as a limit means the engine's setting.
  """

  tokens: np.ndarray
  max_new_tokens: int | None = None
  min_new_tokens: int | None = None


@dataclasses.dataclass(frozen=True)
class Hypothesis:
  """Generated tokens [N] int32, end of sequence included if it was chosen.

  score is what the search ranks by: logprob / N**length_penalty.
  """

  tokens: np.ndarray
  score: float
  logprob: float


@dataclasses.dataclass(frozen=True)
class Result:
  """Hypotheses, best first."""

  hypotheses: tuple[Hypothesis, ...]


class Runner:
  """Decodes up to `num_slots` requests together.

  admit() fills free slots, step() decodes until some slot has finished and
  gives its result, release() drops a request that nobody waits for.
  """

  def __init__(
      self,
      weights: weights_lib.Weights,
      model_config: config_lib.GPTJConfig,
      engine_config: config_lib.EngineConfig,
  ):
    e = engine_config
    self.num_slots = e.num_slots
    self.max_prompt = e.max_prompt
    self._engine = e
    self._vocab_size = model_config.vocab_size
    if model_config.vocab_size < 2 * e.num_beams:
      raise ValueError(
          f"vocab_size is {model_config.vocab_size}; {e.num_beams} beams need"
          f" at least {2 * e.num_beams} tokens to choose from."
      )
    self._settings = programs.Settings(model_config, e)
    self._run = executables.Executables(self._settings, weights)

    def block(length: int) -> cache.Block:
      return cache.empty_block(model_config, e.num_slots, length, e.dtype)

    self._segments = [block(length) for length in e.segment_lengths]
    self._ring = [
        block(e.suffix_block * e.num_beams) for _ in range(e.num_suffix_blocks)
    ]
    # Copied, for a buffer that occurs twice cannot be donated.
    self._slots = jax.tree.map(jnp.copy, programs.empty_slots(self._settings))
    self._admitted: set[int] = set()
    self._row = 0  # Of the last block of the ring, the one being written.

  def warm_up(self, progress: Callable[[str], None] | None = None) -> None:
    """Compiles every program, two at a time; `progress` gets a line for each.

    Without it the programs are compiled when they are first needed.
    """
    self._run.compile_all(progress)

  def admit(self, requests: Mapping[int, Request]) -> None:
    """Prefills requests into free slots.

    Args:
      requests: slot -> request.

    Raises:
      ValueError: a slot is taken or unknown, or a request is out of limits;
        then none of the requests is admitted.
    """
    for slot, request in requests.items():
      self._check(slot, request)
    by_bucket: dict[int, list[int]] = {}
    for slot, request in requests.items():
      bucket = config_lib.at_least(len(request.tokens), self._engine.buckets)
      by_bucket.setdefault(bucket, []).append(slot)
    largest = self._engine.prefill_batches[-1]
    for bucket, slots in by_bucket.items():
      for i in range(0, len(slots), largest):
        batch = slots[i : i + largest]
        self._prefill(bucket, {s: requests[s] for s in batch})

  def step(self) -> dict[int, Result]:
    """Decodes for a while.

    Returns:
      slot -> result of the slots that finished; they are free again. Empty if
      none has finished yet, or if no slot is occupied.
    """
    if not self._admitted:
      return {}
    width = self._engine.suffix_block
    if self._row == width:
      self._turn_ring()
    active = np.zeros(self.num_slots, bool)
    active[list(self._admitted)] = True
    self._ring[-1], self._slots, steps = self._run(
        ("decode",),
        tuple(self._segments),
        tuple(self._ring[:-1]),
        self._ring[-1],
        self._slots,
        active,
        np.int32(self._row),
        np.int32(min(self._engine.steps_per_call, width - self._row)),
    )
    self._row += int(steps)
    finished = np.asarray(self._slots.beams.finished)
    results = {}
    for slot in [s for s in self._admitted if finished[s]]:
      results[slot] = self._result(slot)
      self.release(slot)
    return results

  def release(self, slot: int) -> None:
    """Frees an occupied slot. Raises ValueError if it is free already."""
    if slot not in self._admitted:
      raise ValueError(
          f"slot {slot} is free; occupied are {sorted(self._admitted)}."
      )
    self._admitted.remove(slot)

  def score(self, prefix: np.ndarray, suffix: np.ndarray) -> float:
    """Sum of log-probabilities of `suffix` [M] given `prefix` [N], N >= 1.

    Raises:
      ValueError: out of limits.
    """
    prefix = self._check_tokens("prefix", prefix)
    suffix = self._check_tokens("suffix", suffix)
    limit = self._settings.max_positions
    total = len(prefix) + len(suffix)
    if total > limit:
      raise ValueError(
          f"prefix and suffix have {total} tokens; at most {limit} (max_prompt"
          " + max_new_tokens). Shorten them or serve with larger limits."
      )
    tokens = np.full(limit, self._engine.pad_id, np.int32)
    tokens[:total] = np.concatenate([prefix, suffix])
    value = self._run(
        ("score",), tokens, np.int32(len(prefix)), np.int32(total)
    )
    return float(value)

  def _turn_ring(self) -> None:
    """Makes the oldest suffix block the current one."""
    self._ring = self._ring[1:] + self._ring[:1]
    ancestry = self._slots.ancestry
    self._slots = dataclasses.replace(
        self._slots, ancestry=ancestry[1:] + ancestry[:1]
    )
    self._row = 0

  def _prefill(self, bucket: int, requests: Mapping[int, Request]) -> None:
    e = self._engine
    rows = config_lib.at_least(len(requests), e.prefill_batches)
    tokens = np.full((rows, bucket), e.pad_id, np.int32)
    numbers = np.zeros((4, rows), np.int32)
    # A batch that is not full repeats its last row.
    filled = list(requests.items())
    filled += filled[-1:] * (rows - len(filled))
    for row, (slot, request) in enumerate(filled):
      length = len(request.tokens)
      tokens[row, :length] = request.tokens
      numbers[:, row] = (length, slot, *self._limits(request))
      self._admitted.add(slot)
    n = e.segments_for(bucket)
    segments, self._slots = self._run(
        ("admit", rows, bucket),
        tuple(self._segments[:n]),
        self._slots,
        programs.Prompts(tokens, *numbers),
    )
    self._segments[:n] = segments

  def _result(self, slot: int) -> Result:
    tokens, lengths, scores, kept = jax.device_get(
        self._run(("hypotheses",), self._slots, np.int32(slot))
    )
    power = self._engine.length_penalty
    return Result(
        tuple(
            Hypothesis(t[:n], float(s), float(s) * float(n) ** power)
            for t, n, s, k in zip(tokens, lengths, scores, kept)
            if k
        )
    )

  def _check(self, slot: int, request: Request) -> None:
    e = self._engine
    if not 0 <= slot < self.num_slots:
      raise ValueError(f"slot is {slot}; there are {self.num_slots} slots.")
    if slot in self._admitted:
      raise ValueError(f"slot {slot} is occupied; wait for it or release it.")
    tokens = self._check_tokens("prompt", request.tokens)
    if len(tokens) > self.max_prompt:
      raise ValueError(
          f"the prompt has {len(tokens)} tokens; at most {self.max_prompt}."
          " Shorten it or serve with a larger max_prompt."
      )
    least, most = self._limits(request)
    if not 1 <= most <= e.max_new_tokens:
      raise ValueError(
          f"max_new_tokens is {most}; between 1 and {e.max_new_tokens}, the"
          " engine's own limit."
      )
    if least < 0:
      raise ValueError(f"min_new_tokens is {least}; at least 0.")

  def _check_tokens(self, name: str, tokens: np.ndarray) -> np.ndarray:
    tokens = np.asarray(tokens)
    if tokens.ndim != 1 or not tokens.size:
      raise ValueError(
          f"the {name} has shape {tokens.shape}; one row of at least one token"
          " needed."
      )
    if tokens.min() < 0 or tokens.max() >= self._vocab_size:
      raise ValueError(
          f"the {name} has tokens from {tokens.min()} to {tokens.max()}; the"
          f" vocabulary has 0 to {self._vocab_size - 1}."
      )
    return tokens.astype(np.int32)

  def _limits(self, request: Request) -> tuple[int, int]:
    """(min_new, max_new) of a request."""
    e = self._engine
    most, least = request.max_new_tokens, request.min_new_tokens
    return (
        e.min_new_tokens if least is None else least,
        e.max_new_tokens if most is None else most,
    )
