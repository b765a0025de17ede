"""Runs the engine: holds the slots, and calls the programs that fill them.

The scheduler owns a Runner and calls it from a single thread. No code in this
module takes a lock.
"""

import collections
from collections.abc import Callable, Collection, Mapping
import dataclasses
from typing import Any, Self

import jax
import numpy as np

from saxml_ext.engine import config as config_lib
from saxml_ext.engine import decode_calls
from saxml_ext.engine import executables
from saxml_ext.engine import prefills
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

# The decode steps of a call of which two are under way at a time. With more, a
# slot that is released becomes free later.
_STEPS_AHEAD = 8


class Runner(texts.Texts):
  """Decodes up to `num_slots` requests together.

  The owner chooses the slots. prefill_and_insert() starts requests in free
  slots. step() decodes all of them until some have finished, and returns their
  results. release() drops a request whose answer is no longer needed.

  On an accelerator, step() begins a call before it reads the last one. Then it
  returns the results of the last one; see `decode_calls.py`.

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
    overlaps: True if step() begins a call before it reads the last one.
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
  def start(cls, run: executables.Executables) -> Self:
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
    self._prefills: list[prefills.Prefill] = []
    self._flag = interrupts.Flag()
    # What `_turn_ring` moves with max_context cannot be moved back.
    self.overlaps = jax.default_backend() != 'cpu' and not e.max_context
    # Calls that were not read yet are assumed to make all their steps.
    self._calls: collections.deque[decode_calls.Call] = collections.deque()
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
    single = dict(requests)
    for pack in prefills.pack(requests, self._engine, self._run.is_ready):
      self._advance(pack)
      for slot in pack.requests:
        del single[slot]
    for slot, request in single.items():
      bucket = self._engine.padded(len(request.tokens))
      self._waiting.add(bucket, {slot: request}, self._steps)
    self._begin_prefills()

  def step(self, max_steps: int | None = None) -> dict[int, request_lib.Result]:
    """Prefills a chunk, if one is due, and decodes for some steps.

    Args:
      max_steps: The maximum number of decode steps. None stands for
        steps_per_call, or for fewer steps if calls overlap.

    Returns:
      The results by slot, for slots that finished; they are free again. It is
      empty if no slot has finished, or if no slot is occupied.
    """
    steps = max_steps or self._engine.steps_per_call
    if self.overlaps and max_steps is None:
      steps = min(steps, _STEPS_AHEAD)
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
    key = self._decode_key(decoding)
    last = self._calls[-1] if self._calls else None
    if last and not last.may_precede(key, decoding, self._occupied):
      if results := self._read():
        return results
    self._begin_call(key, decoding, steps)
    if self.overlaps and len(self._calls) == 1:
      return {}
    return self._read()

  def _begin_call(
    self, key: program_keys.Decode, decoding: frozenset[int], steps: int
  ) -> None:
    """Lets the device decode some slots, without a wait."""
    block = self._engine.suffix_block
    if turned := self._row == block:
      self._turn_ring()
    steps = min(steps, block - self._row)
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
        np.int32(steps),
        np.int32(self._flag.number),
      ),
    )
    streamed = self.overlaps and not self._streams.keys().isdisjoint(decoding)
    self._calls.append(
      decode_calls.Call(
        key,
        {slot: self._occupied[slot] for slot in decoding},
        self._steps,
        self._row,
        steps,
        turned,
        done,
        finished,
        self._new_progress(steps) if streamed else None,
      )
    )
    self._row += steps
    self._steps += steps

  def _read(self) -> dict[int, request_lib.Result]:
    """Waits for the oldest call; returns the results of finished slots."""
    call = self._calls.popleft()
    done, ended = jax.device_get((call.done, call.finished))
    if done < call.steps:
      # The call that may follow made no step.
      if any(later.turned for later in self._calls):
        self._rotate_ring(-1)
      self._calls.clear()
      self._row, self._steps = call.row + int(done), call.begin + int(done)
    self._flag.set(up=False)  # The flag now applies to the next call.
    results = {}
    occupied = self._occupied
    held = [s for s in sorted(call.requests) if call.has(s, occupied.get(s))]
    for slot in held:
      if ended[slot]:
        results[slot] = self._result(slot)
        self.release(slot)
    if streamed := [s for s in held if s in self._streams]:
      new = jax.device_get(call.progress or self._new_progress(done))
      self.progress = {s: self._updated(s, new) for s in streamed}
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
    if self.interruptible:
      self._flag.set(up=True)

  @property
  def interruptible(self) -> bool:
    """True if `interrupt` has an effect: on one CPU device, without a mesh."""
    return self._run.mesh is None and jax.default_backend() == 'cpu'

  def _new_progress(self, steps: int) -> Any:
    """Returns the progress of all slots after `steps` steps."""
    # A request also reports the token that its prefill chose.
    window = config_lib.at_least(
      min(steps + 1, self._engine.max_new_tokens), self._engine.progress_windows
    )
    return self._run(program_keys.Progress(window), self._slots)

  def _updated(self, slot: int, new: Any) -> request_lib.Progress:
    """Updates the stream in a slot by the progress of all slots."""
    stream = self._streams[slot]
    stream.update(jax.tree.map(lambda x: x[slot], new))
    return requests_lib.progress(self._occupied[slot], stream)

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
      self._calls.clear()

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
    self._rotate_ring(1)
    self._row = 0

  def _rotate_ring(self, by: int) -> None:
    self._ring = self._ring[by:] + self._ring[:by]
    ancestry = self._slots.ancestry
    self._slots = dataclasses.replace(
      self._slots, ancestry=ancestry[by:] + ancestry[:by]
    )

  def _begin_prefills(self) -> None:
    """Starts the prefills whose wait is over.

    A prompt of one chunk is prefilled at once. A longer one is queued.
    """
    idle = not self.decoding and not self._prefills
    for bucket, requests in self._waiting.take(self._steps, hurry=idle):
      prefill = prefills.Prefill(requests, self._engine.chunks(bucket))
      if len(prefill.chunks) == 1:
        self._advance(prefill)
      else:
        self._prefills.append(prefill)

  def _advance(self, prefill: prefills.Prefill | prefills.Pack) -> None:
    """Runs a batch's next chunk, and puts the rest first in the queue."""
    key, args = prefill.call(self._engine, self._batches)
    n = self._engine.segments_for(key.end)
    segments = tuple(self._segments[:n])
    if prefill.rest:
      segments = self._run(key, segments, *args)
      self._prefills.insert(0, prefill.rest)
    else:
      segments, self._slots = self._run(key, segments, self._slots, *args)
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
