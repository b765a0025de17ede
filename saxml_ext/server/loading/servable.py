"""A loaded model: settings, codecs and the scheduler of its engine."""

from collections.abc import Callable, Mapping
import dataclasses
import threading
import time
from typing import Any

import numpy as np

from saxml_ext.params import settings as settings_lib
from saxml_ext.server.scheduling import scheduler as scheduler_lib
from saxml_ext.server.scheduling import stats
from saxml_ext.server.vocabulary import codec

# A prompt is tokenized within milliseconds, on a busy machine within seconds.
_LEASE_SECS = 10.0
# From finding a model to its lease no thread waits for anything.
_LINGER_SECS = 0.05


class Leases:
  """Counts the calls that may still submit to a model's engine. Thread-safe.

  Between the moment a call finds its model and the moment the model's scheduler
  has its request, the prompt is tokenized, milliseconds on another thread. A
  model that is replaced waits for these calls, so that none of them meets a
  scheduler that is closed.
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
    """Waits until no call uses the model any more.

    Args:
      linger: seconds to wait in any case, for a call that has just found the
        model and not entered yet.
      timeout: seconds to wait at most.

    Returns:
      True if there is none; else there are some that take long.
    """
    time.sleep(linger)
    with self._changed:
      return self._changed.wait_for(
        lambda: not self._count, max(timeout - linger, 0)
      )


@dataclasses.dataclass(frozen=True)
class Servable:
  """Everything a data service needs of one model.

  Attributes:
    settings: of its serving params.
    codecs: of its texts.
    eos_id: the id that ends an answer; None: the stop ids of requests alone do.
    scheduler: of its engine.
    method_stats: by method, every method it serves.
    leases: of calls that have found it.
    on_closed: called when it has stopped serving.
  """

  settings: settings_lib.Settings
  codecs: codec.Codecs
  eos_id: int | None
  scheduler: scheduler_lib.Scheduler
  method_stats: Mapping[str, stats.MethodStats]
  leases: Leases = dataclasses.field(default_factory=Leases)
  on_closed: Callable[[], None] = lambda: None

  @property
  def admission_limit(self) -> int:
    """Requests of one method it holds before it refuses more."""
    return self.settings.admission_limit

  def texts(self, request: Any, result: Any) -> list[tuple[str, float]]:
    """The answer to a request, best hypothesis first.

    Args:
      request: what the engine got.
      result: what it gave.

    Returns:
      Text and score of each hypothesis. Ids are given as they were generated,
      with the id that ended the answer, as Sax does; words without it.
    """
    start = self.said_first(request)
    answers = []
    for hypothesis in result.hypotheses:
      ids = self.said_of(request, hypothesis.tokens)
      text = self.codecs.output.decode(start + ids)
      answers.append((text, float(hypothesis.score)))
    return answers

  def said_first(self, request: Any) -> list[int]:
    """The ids that an answer's text has before the generated ones."""
    return request.tokens.tolist() if self.settings.echo_prompt else []

  def said_of(self, request: Any, tokens: np.ndarray) -> list[int]:
    """Those of generated ids [N] that its text has."""
    ids = tokens.tolist()
    if not self.settings.tokenized_output:
      stops = {self.eos_id, *(request.stop_ids or ())}
      while ids and ids[-1] in stops:
        ids.pop()
    return ids

  def close(self, drain: bool) -> None:
    """Stops serving; see `Scheduler.close`.

    With `drain`, calls that have found it before may still submit; whoever
    takes longer than `_LEASE_SECS` for that waits for an answer already.
    """
    if drain:
      self.leases.wait(_LINGER_SECS, _LEASE_SECS)
    self.scheduler.close(drain)
    self.on_closed()
