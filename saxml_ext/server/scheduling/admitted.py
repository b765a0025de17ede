"""A request that a model's scheduler has admitted, and how it ends."""

from collections.abc import Callable
from concurrent import futures
import dataclasses
import time
from typing import Any

from saxml_ext.common import errors
from saxml_ext.common.telemetry import tracing
from saxml_ext.server.scheduling import stats as stats_lib

GENERATE = 'lm.generate'
STREAM = 'lm.generate_stream'
SCORE = 'lm.score'
EMBED = 'lm.embed'
GRADIENT = 'lm.gradient'
# They take a text at a time, beside the slots, and share one queue.
TEXTS = frozenset({SCORE, EMBED, GRADIENT})


@dataclasses.dataclass(eq=False, slots=True)
class Work:
  """One admitted request, and the times at which it passed each stage.

  The scheduler's thread sets the times. The spans that are made of them belong
  to the call that was being handled when the request was handed over. Devices
  may work asynchronously: a prefill ends for the scheduler when it is
  dispatched, and the wait for it counts as decoding.

  Attributes:
    request: The engine's request; its `tokens` are the prompt, [T].
    deadline: The monotonic time at which nobody waits any more; inf for never.
    arrived: The monotonic time of admission.
    method: The data method; `GENERATE` for streams, too.
    client: The caller; requests of different clients take turns.
    priority: Requests with a lower number go first.
    on_progress: Called with the answer's progress, see `Scheduler.generate`.
    future: Its answer. It stays cancellable until the answer is set.
    bucket: The index of the bucket where it waits; -1 while it does not wait.
    order: Its place among all that ever waited.
    tag: Its place in the turns of clients, see `waiting`.
    parent: The span of its call.
    in_slot: The monotonic time at which it got a slot; 0 before.
    prefilled: The monotonic time at which the engine took its prompt.
    first_token: The monotonic time of the first news of the answer.
  """

  request: Any
  deadline: float
  arrived: float = dataclasses.field(default_factory=time.monotonic)
  method: str = GENERATE
  client: str = ''
  priority: int = 0
  on_progress: Callable[[Any], None] | None = None
  future: futures.Future = dataclasses.field(default_factory=futures.Future)
  bucket: int = -1
  order: int = -1
  tag: int = 0
  parent: Any = dataclasses.field(default_factory=tracing.current)
  in_slot: float = 0.0
  prefilled: float = 0.0
  first_token: float = 0.0

  def is_dead(self, now: float) -> bool:
    """Returns True if nobody waits for the answer any more."""
    return now >= self.deadline or self.future.cancelled()

  def report(self, progress: Any) -> None:
    """Passes the engine's progress on, unless the request was cancelled."""
    if self.on_progress and not self.future.cancelled():
      self.first_token = self.first_token or time.monotonic()
      self.on_progress(progress)

  def finish(self, result: Any, stats: stats_lib.MethodStats) -> None:
    """Counts the request, records its spans, and sets its answer.

    Args:
      result: The engine's. Of a generation, which has `hypotheses`, the tokens
        of the best one are counted.
      stats: The counters of the method.
    """
    end = time.monotonic()
    start = self.in_slot or end
    hypotheses = getattr(result, 'hypotheses', ())
    prompt = len(self.request.tokens)
    output = len(hypotheses[0].tokens) if hypotheses else 0
    stats.answered(
      prompt_tokens=prompt,
      output_tokens=output,
      queued=start - self.arrived,
      first_token=self.first_token - self.arrived if self.first_token else None,
      in_slot=end - start,
    )
    if self.parent is not None:
      prefilled = self.prefilled or start
      for name, begin, until, attributes in (
        ('queue', self.arrived, start, None),
        ('prefill', start, prefilled, {'sax.prompt_tokens': prompt}),
        ('decode', prefilled, end, {'sax.output_tokens': output}),
      ):
        tracing.record(name, self.parent, begin, until, attributes)
    # False if it was cancelled; afterwards it can no longer be.
    if self.future.set_running_or_notify_cancel():
      self.future.set_result(result)

  def fail(self, error: errors.SaxError) -> None:
    """Makes the request fail, unless it was cancelled."""
    if self.future.set_running_or_notify_cancel():
      self.future.set_exception(copy(error))


def copy(error: errors.SaxError) -> errors.SaxError:
  """Returns an equal error.

  One instance that is raised again and again would collect tracebacks.
  """
  return errors.from_code(error.code, error.message)
