"""A request that a model's scheduler has admitted."""

from collections.abc import Callable
from concurrent import futures
import dataclasses
from typing import Any

from saxml_ext.server.scheduling import timeline as timeline_lib

GENERATE = 'lm.generate'
STREAM = 'lm.generate_stream'
SCORE = 'lm.score'
EMBED = 'lm.embed'
GRADIENT = 'lm.gradient'
# They take a text at a time, beside the slots, and share one queue.
TEXTS = frozenset({SCORE, EMBED, GRADIENT})


@dataclasses.dataclass(eq=False, slots=True)
class Work:
  """One admitted request.

  Attributes:
    request: what the engine is to do; its `tokens` are the prompt, [T].
    deadline: monotonic time at which nobody waits any more; inf for never.
    arrived: monotonic time of admission.
    method: the data method; `GENERATE` for streams, too.
    future: its answer. It stays cancellable until the answer is set.
    client: who asks; requests of different clients take turns.
    priority: those with a lower number go first.
    on_progress: told how far the answer is, see `Scheduler.generate`.
    bucket: where it waits, an index; -1 while it does not wait.
    order: its place among all that ever waited.
    timeline: when it passed which stage.
    tag: its place in the turns of clients, see `lane`.
  """

  request: Any
  deadline: float
  arrived: float
  method: str = GENERATE
  future: futures.Future = dataclasses.field(default_factory=futures.Future)
  client: str = ''
  priority: int = 0
  on_progress: Callable[[Any], None] | None = None
  bucket: int = -1
  order: int = -1
  tag: int = 0
  timeline: timeline_lib.Timeline = dataclasses.field(
    default_factory=timeline_lib.Timeline
  )

  def is_dead(self, now: float) -> bool:
    """Whether nobody waits for the answer any more."""
    return now >= self.deadline or self.future.cancelled()
