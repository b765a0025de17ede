"""When one request passed the stages of its model's scheduler.

The scheduler says so on its thread; the spans that this makes belong to the
call that was being handled when the request was handed over. Where devices
work asynchronously, a prefill is over for the scheduler when it is dispatched;
the wait for it counts as decoding.
"""

import time
from typing import Any

from saxml_ext.common.telemetry import tracing
from saxml_ext.server.scheduling import stats as stats_lib


class Timeline:
  """Monotonic times of one request."""

  __slots__ = ('_admitted', '_arrived', '_first', '_parent', '_prefilled')

  def __init__(self):
    """Begins when a request is handed over, in the context of its call."""
    self._parent = tracing.current()
    self._arrived = time.monotonic()
    self._admitted = 0.0
    self._prefilled = 0.0
    self._first = 0.0

  def admitted(self) -> None:
    """The request leaves the queue for a slot."""
    self._admitted = time.monotonic()

  def prefilled(self) -> None:
    """The engine has taken its prompt."""
    self._prefilled = time.monotonic()

  def first_token(self) -> None:
    """The first news of the answer is there; later calls change nothing."""
    if not self._first:
      self._first = time.monotonic()

  def answered(
    self, stats: stats_lib.MethodStats, request: Any, result: Any
  ) -> None:
    """The answer is there.

    Args:
      stats: of the method.
      request: its `tokens` are the prompt, [T].
      result: of a generation, with `hypotheses`; else nothing is told of it.
    """
    end = time.monotonic()
    admitted = self._admitted or end
    hypotheses = getattr(result, 'hypotheses', ())
    count = len(hypotheses[0].tokens) if hypotheses else 0
    stats.answered(
      prompt_tokens=len(request.tokens),
      output_tokens=count,
      queued=admitted - self._arrived,
      first_token=self._first - self._arrived if self._first else None,
      in_slot=end - admitted,
    )
    if self._parent is None:
      return
    prefilled = self._prefilled or admitted
    tracing.record('queue', self._parent, self._arrived, admitted)
    tracing.record(
      'prefill',
      self._parent,
      admitted,
      prefilled,
      {'sax.prompt_tokens': len(request.tokens)},
    )
    tracing.record(
      'decode', self._parent, prefilled, end, {'sax.output_tokens': count}
    )
