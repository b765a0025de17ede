"""A loaded model: settings, codecs and the scheduler of its engine."""

from collections.abc import Callable, Mapping
import dataclasses
import threading
import time

import jax
import numpy as np

from saxml_ext.engine import request as request_lib
from saxml_ext.params import settings as settings_lib
from saxml_ext.server.scheduling import scheduler as scheduler_lib
from saxml_ext.server.scheduling import stats
from saxml_ext.server.vocabulary import codec

# A prompt is tokenized within milliseconds, or within seconds on a busy
# machine.
_LEASE_SECS = 10.0
# A call takes its lease soon after it finds a model, without waiting in
# between.
_LINGER_SECS = 0.05
# On an accelerator, two calls are under way at a time, and neither can be
# interrupted. So a request waits for two steps at most.
_OVERLAPPING_CALL = 1


class Leases:
  """Counts the calls that may still submit to a model's engine. Thread-safe.

  A call finds its model, tokenizes the prompt on another thread, and then
  submits its request to the scheduler. The tokenization takes milliseconds. A
  model that is replaced waits for these calls, so that none of them reaches a
  closed scheduler.
  """

  def __init__(self):
    self._changed = threading.Condition()
    self._count = 0

  def enter(self) -> None:
    """Counts a call that uses the model from now on."""
    with self._changed:
      self._count += 1

  def leave(self) -> None:
    """Counts a call as ended, successful or not."""
    with self._changed:
      self._count -= 1
      if not self._count:
        self._changed.notify_all()

  def wait(self, linger: float, timeout: float) -> bool:
    """Waits until no call uses the model.

    Args:
      linger: The minimum wait in seconds, for a call that has found the model
        but has no lease yet.
      timeout: The maximum wait in seconds.

    Returns:
      True if no call uses the model; False after the timeout.
    """
    time.sleep(linger)
    with self._changed:
      return self._changed.wait_for(
        lambda: not self._count, max(timeout - linger, 0)
      )


@dataclasses.dataclass(frozen=True)
class Servable:
  """All data that a data service needs of one model.

  Attributes:
    settings: The settings of its serving params.
    codecs: The codecs of its texts.
    scheduler: The scheduler of its engine.
    method_stats: The counters of every served method, by method.
    leases: The leases of the calls that have found it.
    on_closed: A function that is called when it has stopped serving.
    activity: The log of its calls.
    programs: A function that returns the numbers of programs that are ready,
      and of all; 0 if they are unknown.
  """

  settings: settings_lib.Settings
  codecs: codec.Codecs
  scheduler: scheduler_lib.Scheduler
  method_stats: Mapping[str, stats.MethodStats]
  leases: Leases = dataclasses.field(default_factory=Leases)
  on_closed: Callable[[], None] = lambda: None
  activity: stats.Activity = dataclasses.field(default_factory=stats.Activity)
  programs: Callable[[], tuple[int, int]] = lambda: (0, 0)

  @property
  def admission_limit(self) -> int:
    """The maximum number of pending requests per method."""
    return self.settings.admission_limit

  def texts(
    self, request: request_lib.Request, result: request_lib.Result
  ) -> list[tuple[str, float]]:
    """Returns the answers to a request, best hypothesis first.

    Args:
      request: The request that the engine got.
      result: The engine's result.

    Returns:
      The text and score of each hypothesis. Ids are returned as generated, with
      the id that ended the answer, as in Sax. Words are returned without it.
    """
    start = self.echoed_ids(request)
    answers = []
    for hypothesis in result.hypotheses:
      ids = self.answer_ids(request, hypothesis.tokens)
      text = self.codecs.output.decode(start + ids)
      answers.append((text, float(hypothesis.score)))
    return answers

  def echoed_ids(self, request: request_lib.Request) -> list[int]:
    """Returns the ids whose text precedes the generated text."""
    return request.tokens.tolist() if self.settings.echo_prompt else []

  def answer_ids(
    self, request: request_lib.Request, tokens: np.ndarray
  ) -> list[int]:
    """Returns the generated ids [N] that belong to the answer's text."""
    ids = tokens.tolist()
    if not self.settings.tokenized_output:
      own = self.settings.end_ids
      stops = own if request.stop_ids is None else request.stop_ids
      while ids and ids[-1] in stops:
        ids.pop()
    return ids

  def close(self, drain: bool) -> None:
    """Stops serving; see `Scheduler.close`.

    With `drain`, calls that have found the model may still submit. A call that
    takes longer than `_LEASE_SECS` already waits for its answer.
    """
    if drain:
      self.leases.wait(_LINGER_SECS, _LEASE_SECS)
    self.scheduler.close(drain)
    self.on_closed()


def serve(
  settings: settings_lib.Settings,
  codecs: codec.Codecs,
  runner: scheduler_lib.Runner,
  on_failure: Callable[[str], None],
  seed: int | None = None,
) -> Servable:
  """Creates the scheduler of an engine and returns the servable model.

  Args:
    settings: The settings of the model.
    codecs: The codecs of the model's texts.
    runner: The engine of the model.
    on_failure: A function that is called with the reason if the engine fails.
    seed: The seed from which requests without a seed get one; None draws random
      seeds.
  """
  method_stats = {method: stats.MethodStats() for method in settings.methods}
  # The scheduler uses these counters even if only one of the methods is served.
  unseen = {
    method: stats.MethodStats()
    for method in (scheduler_lib.GENERATE, scheduler_lib.SCORE)
  }
  return Servable(
    settings=settings,
    codecs=codecs,
    method_stats=method_stats,
    scheduler=scheduler_lib.Scheduler(
      runner,
      limit=settings.admission_limit,
      buckets=settings.engine.prompt_buckets,
      patience=settings.admission_wait,
      stream_interval=settings.stream_interval,
      short_call=scheduler_lib.SHORT_CALL
      if jax.default_backend() == 'cpu'
      else _OVERLAPPING_CALL,
      seed=seed,
      method_stats={**unseen, **method_stats},
      on_failure=on_failure,
    ),
  )
