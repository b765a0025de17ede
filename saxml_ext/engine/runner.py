"""Host side of the engine: slots, programs, and what is live.

The scheduler owns a Runner and is the only one to call it; nothing here takes
a lock.
"""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import secrets

import jax
import jax.numpy as jnp
import numpy as np

from saxml_ext.engine import config as config_lib
from saxml_ext.engine import executables
from saxml_ext.engine import programs
from saxml_ext.engine import search
from saxml_ext.engine import sharding
from saxml_ext.engine import weights as weights_lib


@dataclasses.dataclass(frozen=True)
class Request:
  """A prompt and what is asked of its answer; None: the engine's setting.

  Attributes:
    tokens: [T] int32.
    max_new_tokens: at it the answer ends.
    min_new_tokens: before it no stop id is chosen.
    stop_ids: tokens that end the answer; None: the engine's eos_id alone.
    temperature: of samples; 0 takes the likeliest token.
    top_k: samples come from this many tokens.
    top_p: samples come from the likeliest tokens that have this share of the
      probability.
    seed: the same seed gives the same samples; None draws one.
  """

  tokens: np.ndarray
  max_new_tokens: int | None = None
  min_new_tokens: int | None = None
  stop_ids: Sequence[int] | None = None
  temperature: float | None = None
  top_k: int | None = None
  top_p: float | None = None
  seed: int | None = None


@dataclasses.dataclass(frozen=True)
class Hypothesis:
  """Generated tokens [N] int32, end of sequence included if it was chosen.

  logprob is the sum of the tokens' log-probabilities, whatever the
  temperature; score is what the search ranks by, see `search.Rule`.
  """

  tokens: np.ndarray
  score: float
  logprob: float


@dataclasses.dataclass(frozen=True)
class Result:
  """Beams or samples, best first."""

  hypotheses: tuple[Hypothesis, ...]


# Decode steps beside a prefill in progress: more would delay its first token,
# fewer would pay for a call's overhead too often.
_STEPS_BESIDE_PREFILL = 4


@dataclasses.dataclass(frozen=True)
class _Prefill:
  """A batch whose prompts are longer than a chunk, and the chunks left."""

  requests: dict[int, Request]
  chunks: tuple[tuple[int, int], ...]


class Runner:
  """Decodes up to `num_slots` requests together.

  admit() fills free slots, step() goes on with prefills, decodes until some
  slot has finished and gives its result, release() drops a request that nobody
  waits for.
  """

  def __init__(
      self,
      weights: weights_lib.Weights,
      model_config: config_lib.GPTJConfig,
      engine_config: config_lib.EngineConfig,
      mesh: jax.sharding.Mesh | None = None,
  ):
    """Allocates all state; compiles nothing yet.

    Args:
      weights: the model, layers unrolled or stacked.
      model_config: its sizes.
      engine_config: how it is run.
      mesh: the devices to split it among, see `sharding.py`; None: one device.

    Raises:
      ValueError: too few tokens to choose from, or the mesh does not divide the
        sizes.
    """
    e = engine_config
    self.num_slots = e.num_slots
    self.max_prompt = e.max_prompt
    self._engine = e
    self._vocab_size = model_config.vocab_size
    least = (1 + e.max_stop_ids) * e.num_beams
    if model_config.vocab_size < least:
      raise ValueError(
          f"vocab_size is {model_config.vocab_size}; {e.num_beams} beams and"
          f" {e.max_stop_ids} stop ids need at least {least} tokens to choose"
          " from."
      )
    self._settings = programs.Settings(model_config, e)
    if mesh is not None:
      sharding.check(mesh, model_config, e.num_slots)
      weights = sharding.place(mesh, sharding.pad(mesh, weights))
    self._run = executables.Executables(self._settings, weights, mesh)

    s, stacked = self._settings, weights.stacked
    self._segments = [
        sharding.create(mesh, lambda: programs.empty_segment(s, i, stacked))
        for i in range(len(e.segments))
    ]
    self._ring = [
        sharding.create(mesh, lambda: programs.empty_suffix(s, stacked))
        for _ in range(e.num_suffix_blocks)
    ]
    # Copied, for a buffer that occurs twice cannot be donated.
    self._slots = sharding.create(
        mesh,
        lambda: jax.tree.map(jnp.copy, programs.empty_slots(self._settings)),
    )
    self._admitted: set[int] = set()
    self._prefills: list[_Prefill] = []
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
      self._check_slot(slot)
      self.check(request)
    self._admitted.update(requests)
    by_bucket: dict[int, list[int]] = {}
    for slot, request in requests.items():
      bucket = config_lib.at_least(len(request.tokens), self._engine.buckets)
      by_bucket.setdefault(bucket, []).append(slot)
    largest = self._engine.prefill_batches[-1]
    for bucket, slots in by_bucket.items():
      chunks = self._engine.chunks(bucket)
      for i in range(0, len(slots), largest):
        batch = {slot: requests[slot] for slot in slots[i : i + largest]}
        prefill = _Prefill(batch, chunks)
        if len(chunks) == 1:
          self._advance(prefill)
        else:
          self._prefills.append(prefill)

  def step(self, max_steps: int | None = None) -> dict[int, Result]:
    """Prefills a chunk, if there is one to do, and decodes for a while.

    Args:
      max_steps: at most this many decode steps; None: steps_per_call.

    Returns:
      slot -> result of the slots that finished; they are free again. Empty if
      none has finished yet, or if no slot is occupied.
    """
    steps = max_steps or self._engine.steps_per_call
    if self._prefills:
      self._advance(self._prefills.pop(0))
    if self._prefills:
      steps = min(steps, _STEPS_BESIDE_PREFILL)
    waiting = {slot for p in self._prefills for slot in p.requests}
    decoding = self._admitted - waiting
    if not decoding:
      return {}
    block = self._engine.suffix_block
    if self._row == block:
      self._turn_ring()
    width = config_lib.at_least(len(decoding), self._engine.widths)
    idle = [s for s in range(self.num_slots) if s not in decoding]
    chosen = sorted([*decoding, *idle[: width - len(decoding)]])
    self._ring[-1], self._slots, done = self._run(
        ("decode", width),
        tuple(self._segments),
        tuple(self._ring[:-1]),
        self._ring[-1],
        self._slots,
        np.asarray(chosen, np.int32),
        np.isin(chosen, list(decoding)),
        np.int32(self._row),
        np.int32(min(steps, block - self._row)),
    )
    self._row += int(done)
    finished = np.asarray(self._slots.searches.finished)
    results = {}
    for slot in [s for s in decoding if finished[s]]:
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
    for prefill in self._prefills:
      prefill.requests.pop(slot, None)
    self._prefills = [p for p in self._prefills if p.requests]

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

  def _advance(self, prefill: _Prefill) -> None:
    """Runs a batch's next chunk; what is left of it comes first again."""
    e = self._engine
    (start, end), *rest = prefill.chunks
    rows = config_lib.at_least(len(prefill.requests), e.prefill_batches)
    # A batch that is not full repeats its last row.
    filled = list(prefill.requests.items())
    filled += filled[-1:] * (rows - len(filled))
    tokens = np.full((rows, end - start), e.pad_id, np.int32)
    for row, (_, request) in enumerate(filled):
      part = request.tokens[start:end]
      tokens[row, : len(part)] = part
    slots = np.asarray([slot for slot, _ in filled], np.int32)
    n = e.segments_for(end)
    segments = tuple(self._segments[:n])
    if rest:
      segments = self._run(
          ("extend", rows, start, end), segments, tokens, slots
      )
      self._prefills.insert(0, _Prefill(prefill.requests, tuple(rest)))
    else:
      requests = [request for _, request in filled]
      lengths = np.asarray([len(r.tokens) for r in requests], np.int32)
      segments, self._slots = self._run(
          ("admit", rows, start, end),
          segments,
          self._slots,
          programs.Prompts(tokens, lengths, slots, self._options(requests)),
      )
    self._segments[:n] = segments

  def _options(self, requests: Sequence[Request]) -> search.Options:
    e = self._engine
    stop_ids = np.full(
        (len(requests), e.max_stop_ids), search.NO_TOKEN, np.int32
    )
    for row, request in enumerate(requests):
      ids = self._stop_ids(request)
      stop_ids[row, : len(ids)] = ids
    limits = [self._limits(r) for r in requests]

    def column(values, dtype):
      return np.asarray(list(values), dtype)

    return search.Options(
        min_new=column((least for least, _ in limits), np.int32),
        max_new=column((most for _, most in limits), np.int32),
        stop_ids=stop_ids,
        temperature=column(
            (_or(r.temperature, e.temperature) for r in requests), np.float32
        ),
        top_k=column((r.top_k or 0 for r in requests), np.int32),
        top_p=column((_or(r.top_p, e.top_p) for r in requests), np.float32),
        seed=column((self._seed(r) for r in requests), np.uint32),
    )

  def _result(self, slot: int) -> Result:
    tokens, lengths, scores, kept = jax.device_get(
        self._run(("hypotheses",), self._slots, np.int32(slot))
    )
    norms = self._settings.rule.length_norm(lengths)
    order = [i for i in np.argsort(-scores, kind="stable") if kept[i]]
    return Result(
        tuple(
            Hypothesis(
                tokens[i, : lengths[i]],
                float(scores[i]),
                float(scores[i]) * float(norms[i]),
            )
            for i in order
        )
    )

  def check(self, request: Request) -> None:
    """Raises ValueError if a request is out of limits. Any thread may ask."""
    e = self._engine
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
    self._check_choice(request)

  def _check_slot(self, slot: int) -> None:
    if not 0 <= slot < self.num_slots:
      raise ValueError(f"slot is {slot}; there are {self.num_slots} slots.")
    if slot in self._admitted:
      raise ValueError(f"slot {slot} is occupied; wait for it or release it.")

  def _check_choice(self, request: Request) -> None:
    """Raises ValueError for options that the engine cannot follow."""
    e = self._engine
    ids = self._stop_ids(request)
    if len(ids) > e.max_stop_ids:
      raise ValueError(
          f"there are {len(ids)} stop ids; at most {e.max_stop_ids}, the"
          " engine's max_stop_ids."
      )
    if any(not 0 <= i < self._vocab_size for i in ids):
      raise ValueError(
          f"stop ids {list(ids)} are not all in the vocabulary, 0 to"
          f" {self._vocab_size - 1}."
      )
    temperature = _or(request.temperature, e.temperature)
    if not 0 <= temperature < float("inf"):
      raise ValueError(f"temperature is {temperature}; at least 0, finite.")
    top_p = _or(request.top_p, e.top_p)
    if not 0 < top_p <= 1:
      raise ValueError(f"top_p is {top_p}; above 0 and at most 1.")
    if not 0 <= (request.top_k or 0) <= e.max_top_k:
      raise ValueError(
          f"top_k is {request.top_k}; between 0 and {e.max_top_k}, the engine's"
          " max_top_k."
      )
    if not 0 <= (request.seed or 0) < 2**32:
      raise ValueError(f"seed is {request.seed}; between 0 and 2**32 - 1.")

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

  def _stop_ids(self, request: Request) -> Sequence[int]:
    if request.stop_ids is None:
      return (self._engine.eos_id,)
    return request.stop_ids

  def _seed(self, request: Request) -> int:
    return secrets.randbits(32) if request.seed is None else request.seed

  def _limits(self, request: Request) -> tuple[int, int]:
    """(min_new, max_new) of a request."""
    e = self._engine
    return (
        _or(request.min_new_tokens, e.min_new_tokens),
        _or(request.max_new_tokens, e.max_new_tokens),
    )


def _or(value, default):
  return default if value is None else value
