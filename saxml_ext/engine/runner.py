"""Runs the engine: holds the slots, and calls the programs that fill them.

The scheduler owns a Runner and calls it from a single thread. No code in this
module takes a lock.
"""

from collections.abc import Callable, Collection, Mapping
import dataclasses

import jax
import numpy as np

from saxml_ext.engine import config as config_lib
from saxml_ext.engine import executables
from saxml_ext.engine import preparation
from saxml_ext.engine import program_keys
from saxml_ext.engine import request as request_lib
from saxml_ext.engine import sharding
from saxml_ext.engine import state
from saxml_ext.engine import texts
from saxml_ext.engine import weights as weights_lib
from saxml_ext.engine.attention import slot_parts
from saxml_ext.engine.kernels import interrupts
from saxml_ext.engine.search import requests as requests_lib
from saxml_ext.engine.search import streams


@dataclasses.dataclass(frozen=True)
class _Prefill:
  """A batch of prompts longer than a chunk, and the remaining chunks."""

  requests: dict[int, request_lib.Request]
  chunks: tuple[tuple[int, int], ...]


class Runner(texts.Texts):
  """Decodes up to `num_slots` requests together.

  The owner chooses the slots. prefill_and_insert() starts requests in free
  slots. step() decodes all of them until some have finished, and returns their
  results. release() drops a request whose answer is no longer needed.

  If several processes share the devices, each has a Runner. All of them call
  the same methods in the same order with the same arguments. A request then
  requires a seed, because otherwise each process would draw its own.

  The same calls give the same bits, and a request that is served alone always
  gets the same bits. With other requests, the last bits of its scores may
  differ, because the order of float sums depends on the start of each request.

  Attributes:
    num_slots: The number of requests decoded together.
    max_prompt: The length of the longest prompt in tokens.
    progress: The certain tokens of answers, by slot. It contains the streaming
      requests that the last step() decoded and did not finish.
  """

  def __init__(
    self,
    weights: weights_lib.Weights,
    model_config: config_lib.ModelConfig,
    engine_config: config_lib.EngineConfig,
    mesh: jax.sharding.Mesh | None = None,
    ready: executables.Ready | None = None,
  ):
    """Allocates all state, and compiles only the program for that.

    The arguments and errors are those of `preparation.prepare`.
    """
    self._start(
      preparation.prepare(weights, model_config, engine_config, mesh, ready)
    )

  @classmethod
  def start(cls, run: executables.Executables) -> 'Runner':
    """Allocates the state of a Runner with programs of `preparation.prepare`.

    It runs a program. If several processes share the devices, all must call it.
    """
    runner = cls.__new__(cls)
    runner._start(run)
    return runner

  def _start(self, run: executables.Executables) -> None:
    e = run.settings.engine
    self.num_slots = e.num_slots
    self.max_prompt = e.max_prompt
    self._engine = e
    checks = request_lib.Checks(e, run.settings.model.vocab_size)
    super().__init__(run, run.settings, checks)
    self._run: executables.Executables = run
    self._batches = slot_parts.Batches(
      e.num_slots, sharding.slot_parts(run.mesh), e.prefill_batches
    )
    empty = self._run(program_keys.EmptyState())
    self._segments = list(empty.segments)
    self._ring = list(empty.ring)
    self._slots = empty.slots
    self._occupied: dict[int, request_lib.Settled] = {}
    self._streams: dict[int, streams.Stream] = {}
    self.progress: Mapping[int, request_lib.Progress] = {}
    self._waiting: slot_parts.PromptQueue[request_lib.Request] = (
      slot_parts.PromptQueue(self._batches)
    )
    self._prefills: list[_Prefill] = []
    self._flag = interrupts.Flag()
    self._steps = 0  # The number of steps decoded so far.
    self._chunk_due = 0  # The number of steps before the next chunk.
    self._row = 0  # The next row of the ring's last block.

  def warm_up(self, progress: Callable[[str], None] | None = None) -> None:
    """Loads or compiles every program; see `Executables.prepare_all`.

    Without this call, programs are loaded or compiled on first use.
    """
    self._run.prepare_all(progress)

  def prefill_and_insert(
    self, requests: Mapping[int, request_lib.Request]
  ) -> None:
    """Starts requests in free slots.

    Prompts of one chunk are prefilled at once. For longer prompts, step()
    prefills a chunk every `prefill_interval` decode steps. If devices split the
    slots, a prompt may wait a few steps for prompts of the other parts; see
    `slot_parts.PromptQueue`.

    Args:
      requests: The requests by slot.

    Raises:
      ValueError: A slot is occupied or unknown, or a request exceeds the
        limits. No request is started then.
    """
    for slot, request in requests.items():
      self._check_slot(slot)
      self.check(request)
    for slot, request in requests.items():
      settled = request_lib.settle(request, self._engine)
      self._occupied[slot] = settled
      if request.stream:
        self._streams[slot] = streams.Stream(
          settled.rows, sampled=not settled.beam_search
        )
    by_bucket: dict[int, list[int]] = {}
    for slot, request in requests.items():
      bucket = self._engine.padded(len(request.tokens))
      by_bucket.setdefault(bucket, []).append(slot)
    for bucket, slots in by_bucket.items():
      chosen = {slot: requests[slot] for slot in slots}
      self._waiting.add(bucket, chosen, self._steps)
    self._begin_prefills()

  def step(self, max_steps: int | None = None) -> dict[int, request_lib.Result]:
    """Prefills a chunk, if one is due, and decodes for some steps.

    Args:
      max_steps: The maximum number of decode steps. None stands for
        steps_per_call.

    Returns:
      The results by slot, for slots that finished; they are free again. It is
      empty if no slot has finished, or if no slot is occupied.
    """
    steps = max_steps or self._engine.steps_per_call
    self.progress = {}
    self._begin_prefills()
    interval = self._engine.prefill_interval
    if self._prefills and (not self.decoding or self._steps >= self._chunk_due):
      self._advance(self._prefills.pop(0))
      self._chunk_due = self._steps + interval
    if self._prefills:
      steps = min(steps, self._chunk_due - self._steps)
    elif self._waiting:
      steps = min(steps, interval)
    decoding = self.decoding
    if not decoding:
      return {}
    if not self._streams.keys().isdisjoint(decoding):
      steps = min(steps, self._engine.steps_per_call)  # Streams miss no step.
    block = self._engine.suffix_block
    if self._row == block:
      self._turn_ring()
    key = self._decode_key(decoding)
    idle = [s for s in range(self.num_slots) if s not in decoding]
    chosen = sorted([*decoding, *idle[: key.width - len(decoding)]])
    *past, current = self._ring
    self._ring[-1], self._slots, done, finished = self._run(
      key,
      state.KV(tuple(self._segments), tuple(past)),
      current,
      self._slots,
      state.Batch(
        np.asarray(chosen, np.int32),
        np.isin(chosen, list(decoding)),
        np.int32(self._row),
        np.int32(min(steps, block - self._row)),
        np.int32(self._flag.number),
      ),
    )
    self._row += int(done)
    self._steps += int(done)
    ended = np.asarray(finished)
    self._flag.set(up=False)  # The flag now applies to the next call.
    results = {}
    for slot in [s for s in sorted(decoding) if ended[s]]:
      results[slot] = self._result(slot)
      self.release(slot)
    self._report_progress(sorted(decoding & self._streams.keys()), int(done))
    return results

  def _decode_key(self, decoding: Collection[int]) -> program_keys.Decode:
    """Returns the program that decodes these slots.

    If the best one is still being compiled, it is one that is ready and does
    more work, if there is one.
    """
    widths = [w for w in self._engine.widths if w >= len(decoding)]
    keys = [program_keys.Decode(width) for width in widths]
    if self._engine.max_context and all(
      self._occupied[slot].is_single for slot in decoding
    ):
      keys = [*map(program_keys.DecodeSingle, widths), *keys]
    return next(filter(self._run.is_ready, keys), keys[0])

  def interrupt(self) -> None:
    """Ends the current decode call after its current step; thread-safe.

    Without a current call, the next one ends after its first step. The method
    has no effect unless `interruptible` is True. Otherwise every call of step()
    runs to its end, and a slot becomes free soon only if the calls have few
    steps.
    """
    self._flag.set(up=True)

  @property
  def interruptible(self) -> bool:
    """True if `interrupt` has an effect: on one CPU device, without a mesh."""
    return self._run.mesh is None and jax.default_backend() == 'cpu'

  def _report_progress(self, slots: Collection[int], steps: int) -> None:
    """Updates the progress of the streams in `slots` after `steps` steps."""
    if not slots:
      return
    # A request also reports the token that its prefill chose.
    window = config_lib.at_least(
      min(steps + 1, self._engine.max_new_tokens), self._engine.progress_windows
    )
    new = jax.device_get(self._run(program_keys.Progress(window), self._slots))
    progress = {}
    for slot in slots:
      stream = self._streams[slot]
      stream.update(jax.tree.map(lambda x, slot=slot: x[slot], new))
      progress[slot] = requests_lib.progress(self._occupied[slot], stream)
    self.progress = progress

  @property
  def decoding(self) -> frozenset[int]:
    """The occupied slots with prefilled prompts, which decode in each step."""
    waiting = {slot for p in self._prefills for slot in p.requests}
    return frozenset(self._occupied.keys() - waiting - self._waiting.slots)

  def release(self, slot: int) -> None:
    """Frees an occupied slot.

    Raises:
      ValueError: The slot is free already.
    """
    if slot not in self._occupied:
      raise ValueError(
        f'slot {slot} is free. Occupied slots: {sorted(self._occupied)}.'
      )
    del self._occupied[slot]
    self._streams.pop(slot, None)
    self._waiting.discard(slot)
    for prefill in self._prefills:
      prefill.requests.pop(slot, None)
    self._prefills = [p for p in self._prefills if p.requests]
    if not self.decoding:
      # No request has a suffix now. Float sums depend on the row at which a
      # suffix begins. So an idle engine starts at row 0 and gives the same bits
      # each time.
      self._row = 0

  def _turn_ring(self) -> None:
    """Makes the oldest suffix block the current one."""
    if self._engine.max_context:
      for slot in sorted(self.decoding):
        if self._occupied[slot].is_single:
          segments, self._slots = self._run(
            program_keys.MoveSteps(),
            tuple(self._segments),
            self._ring[-1],
            self._slots,
            np.int32(slot),
          )
          self._segments[:] = segments
    self._ring = self._ring[1:] + self._ring[:1]
    ancestry = self._slots.ancestry
    self._slots = dataclasses.replace(
      self._slots, ancestry=ancestry[1:] + ancestry[:1]
    )
    self._row = 0

  def _begin_prefills(self) -> None:
    """Starts the prefills whose wait is over.

    A prompt of one chunk is prefilled at once. A longer one is queued.
    """
    idle = not self.decoding and not self._prefills
    for bucket, requests in self._waiting.take(self._steps, hurry=idle):
      prefill = _Prefill(requests, self._engine.chunks(bucket))
      if len(prefill.chunks) == 1:
        self._advance(prefill)
      else:
        self._prefills.append(prefill)

  def _advance(self, prefill: _Prefill) -> None:
    """Runs a batch's next chunk, and puts the rest first in the queue."""
    e = self._engine
    (start, end), *rest = prefill.chunks
    *_, (_, last) = prefill.requests.items()
    filled = [
      (slot, prefill.requests.get(slot, last))
      for slot in self._batches.rows(list(prefill.requests))
    ]
    rows = len(filled)
    tokens = np.full((rows, end - start), e.pad_id, np.int32)
    for row, (_, request) in enumerate(filled):
      part = request.tokens[start:end]
      tokens[row, : len(part)] = part
    slots = np.asarray([slot for slot, _ in filled], np.int32)
    at: tuple[np.int32, ...] = ()
    if e.max_context:  # One program prefills at any position.
      at, start, end = (np.int32(start),), 0, end - start
    n = e.segments_for(end)
    segments = tuple(self._segments[:n])
    if rest:
      segments = self._run(
        program_keys.PrefillChunk(rows, start, end),
        segments,
        tokens,
        slots,
        *at,
      )
      self._prefills.insert(0, _Prefill(prefill.requests, tuple(rest)))
    else:
      requests = [request for _, request in filled]
      lengths = np.asarray([len(r.tokens) for r in requests], np.int32)
      segments, self._slots = self._run(
        program_keys.PrefillAndInsert(rows, start, end),
        segments,
        self._slots,
        state.Prompts(
          tokens, lengths, slots, requests_lib.options(requests, e)
        ),
        *at,
      )
    self._segments[:n] = segments

  def _result(self, slot: int) -> request_lib.Result:
    answer = self._run(program_keys.Hypotheses(), self._slots, np.int32(slot))
    kept, trace = jax.device_get(answer)
    return requests_lib.result(self._occupied[slot], self._engine, kept, trace)

  def check(self, request: request_lib.Request) -> None:
    """Raises ValueError if a request exceeds the limits; thread-safe."""
    self._checks.request(request)

  def _check_slot(self, slot: int) -> None:
    if not 0 <= slot < self.num_slots:
      raise ValueError(f'slot is {slot}, but there are {self.num_slots} slots.')
    if slot in self._occupied:
      raise ValueError(f'slot {slot} is occupied. Wait for it or release it.')
