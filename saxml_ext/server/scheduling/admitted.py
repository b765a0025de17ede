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
# The methods that process one text at a time, without a slot. They share one
# queue.
TEXTS = frozenset({SCORE, EMBED, GRADIENT})


@dataclasses.dataclass(eq=False, slots=True)
class Work:
  """One admitted request, and the times at which it passed each stage.

  The scheduler's thread sets the times. The tracing spans made from these times
  belong to the call that submitted the request. Devices may work
  asynchronously. For the scheduler, a prefill ends when it is dispatched, so
  the wait for its result counts as decoding.

  Attributes:
    request: The engine's request; its `tokens` [T] are the prompt.
    deadline: The monotonic time at which the request expires; inf for never.
    arrived: The monotonic time of admission.
    method: The data method; streams also have `GENERATE`.
    client: The caller; requests of different clients take turns.
    priority: The priority; requests with a lower number are served first.
    on_progress: A function that is called with the progress, see
      `Scheduler.generate`.
    future: The future of the answer. It can be cancelled until the answer is
      set.
    bucket: The index of the bucket where it waits; -1 while it does not wait.
    order: The position among all requests that ever waited.
    tag: The position in the turns of clients, see `waiting`.
    parent: The tracing span of the call.
    in_slot: The monotonic time at which it got a slot; 0 before.
    prefilled: The monotonic time at which the engine accepted the prompt.
    first_token: The monotonic time of the first reported progress.
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
    """Returns True if the request has expired or was cancelled."""
    return now >= self.deadline or self.future.cancelled()

  def report(self, progress: Any) -> None:
    """Forwards the engine's progress, unless the request was cancelled."""
    if self.on_progress and not self.future.cancelled():
      self.first_token = self.first_token or time.monotonic()
      self.on_progress(progress)

  def finish(self, result: Any, stats: stats_lib.MethodStats) -> None:
    """Counts the request, records its spans, and sets its answer.

    Args:
      result: The engine's result. If it has `hypotheses`, the tokens of the
        best one are counted.
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
    # The call returns False if the future was cancelled. After the call, the
    # future can no longer be cancelled.
    if self.future.set_running_or_notify_cancel():
      self.future.set_result(result)

  def fail(self, error: errors.SaxError) -> None:
    """Sets an error as the answer, unless the request was cancelled."""
    if self.future.set_running_or_notify_cancel():
      self.future.set_exception(copy(error))


def copy(error: errors.SaxError) -> errors.SaxError:
  """Returns a copy of an error.

  If one instance were raised several times, it would collect tracebacks.
  """
  return errors.from_code(error.code, error.message)
