"""Keeps the list of models that a cell publishes, with their public names.

Names are checked against this list before a client is created. Otherwise, an
invented name would cost a thread that watches for replicas.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
import contextvars
import math
import re
import time
import types

from saxml_ext.client import sax_aio
from saxml_ext.common import errors
from saxml_ext.http.protocol import problems
from saxml_ext.http.web import gateway_metrics
from saxml_ext.protobuf import completion_pb2

# The maximum age of the list, in seconds: for models on the list, for models
# that are missing on it, and for health checks.
_FRESH_SECS = 10.0
_MISSING_SECS = 1.0
_HEALTHY_SECS = 30.0
# The timeout of a call to the admin server, and the pause after a failed call,
# in seconds.
_LIST_TIMEOUT = 2.0
_PAUSE_SECS = 1.0
# The maximum age of a description, in seconds: of a known one, because the
# model may be reloaded, and of an unknown one, because a replica may start.
_DESCRIBED_SECS = 30.0
_UNKNOWN_SECS = 5.0
_DESCRIBE_TIMEOUT = 2.0
LOADING, FAILED = 'loading', 'failed'
# The states in which a model cannot answer.
NOT_READY = (LOADING, FAILED, 'missing')
# The retry delay of a model that does not report its progress, in seconds.
_LOADING_SECS = 5.0
_REMAINING = re.compile(r'(\d+(?:\.\d+)?) s left')

_Description = completion_pb2.DescribeResponse | None


class Catalogue:
  """The published models of a cell; it belongs to one event loop.

  Attributes:
    cell: The cell id, "/sax/<cell>".
    default: The id of the model for requests that name none. With "", it is the
      only model of the cell.
    aliases: The ids of models by public name.
  """

  def __init__(
    self,
    cell: str,
    default_model: str = '',
    aliases: Mapping[str, str] = types.MappingProxyType({}),
    clock: Callable[[], float] = time.monotonic,
  ):
    """Creates the catalogue without calling the cell.

    Args:
      cell: The cell id, "/sax/<cell>".
      default_model: The model for requests that name none, see `default`.
      aliases: The ids or short names of models by public name.
      clock: The clock, in seconds; tests replace it.
    """
    self.cell = cell
    self.default = default_model
    self.aliases: Mapping[str, str] = {}
    self.aliases = {k: self.full_id(v) for k, v in aliases.items()}
    self._clock = clock
    self._listed = self._failed = -math.inf
    self._error: errors.SaxError | None = None
    self._listing: asyncio.Task[None] | None = None
    self._known: dict[str, int] = {}
    self._replicas: dict[str, Sequence[sax_aio.Replica]] = {}
    self._models: dict[str, sax_aio.LanguageModel] = {}
    self._described: dict[str, tuple[float, _Description]] = {}

  def full_id(self, name: str) -> str:
    """Returns the full id of a model, for example "/sax/test/m" for "m"."""
    if name in self.aliases:
      return self.aliases[name]
    return name if name.startswith('/') else f'{self.cell}/{name}'

  def names(self, model_id: str) -> list[str]:
    """Returns the public names of a model, or its id if it has none."""
    return [k for k, v in self.aliases.items() if v == model_id] or [model_id]

  async def find(self, name: str | None) -> str:
    """Returns the id of the model that a request names.

    Raises:
      problems.Problem: The model is not published, or the request names none
      and there are several.
      errors.SaxError: The cell cannot be reached.
    """
    name = name or self.default
    if not name:
      return await self._only()
    model_id = self.full_id(name)
    if model_id in self._known:
      self._refresh_if_old()
    elif model_id not in await self.published(_MISSING_SECS):
      if name in self.aliases:
        raise problems.unavailable(
          f'the model {name} is not published yet. Try again in'
          f' {_LOADING_SECS:g} s',
          _LOADING_SECS,
        )
      names = [public for known in self._known for public in self.names(known)]
      raise problems.model_not_found(name, names)
    return model_id

  async def find_ready(
    self, name: str | None, record: gateway_metrics.Record
  ) -> str:
    """Returns the id of a model that can answer, and records the model.

    Raises:
      problems.Problem, errors.SaxError: There is no such model, or it is not
      ready.
    """
    record.model_id = await self.find(name)
    record.model = self.names(record.model_id)[0]
    record.name = name or record.model
    await self.check_ready(record.model_id)
    return record.model_id

  def state(self, model_id: str) -> tuple[str, str]:
    """Returns the state of a model, and the reason why it cannot answer.

    The state is that of its best replica in lower case, for example "loaded"
    or `LOADING`; "" if the admin server does not report it.
    """
    reasons = {r.status: r.reason for r in self._replicas.get(model_id, ())}
    for status in ('LOADED', LOADING.upper(), FAILED.upper(), *reasons):
      if status in reasons:
        return status.lower(), reasons[status]
    return '', ''

  def not_ready(self) -> dict[str, str]:
    """Returns the state and the reason of models that cannot answer, by name."""
    return {
      name: ': '.join(filter(None, self.state(model_id)))
      for model_id in self._known
      for name in self.names(model_id)
      if self.state(model_id)[0] in NOT_READY
    }

  async def check_ready(self, model_id: str) -> None:
    """Rejects a request for a model that is being loaded or cannot be loaded.

    Models without a replica are accepted, because a replica may be about to
    come back.

    Raises:
      problems.Problem: All replicas are being loaded, or could not be loaded.
    """
    if self.state(model_id)[0] not in (LOADING, FAILED):
      return
    try:
      await self.published(_MISSING_SECS)
    except errors.SaxError:
      return  # The model may be loaded in the meantime.
    state, reason = self.state(model_id)
    if state == LOADING:
      remaining = _REMAINING.search(reason)
      secs = float(remaining[1]) if remaining else _LOADING_SECS
      raise problems.unavailable(
        f'the model {model_id} is loading{reason and f": {reason}"}. Try again'
        f' in {max(1, math.ceil(secs))} s',
        max(1.0, secs),
      )
    if state == FAILED:
      raise problems.unavailable(
        f'the model {model_id} could not be loaded:'
        f' {reason or "no reason given"}',
        None,
      )

  async def _only(self) -> str:
    self._refresh_if_old()
    ids = list(self._known or await self.published(_MISSING_SECS))
    if len(ids) == 1:
      return ids[0]
    raise problems.BadRequest(
      f'model: it is missing, and the cell {self.cell} publishes {len(ids)}'
      ' models. Set one of them',
      param='model',
    )

  def model(self, model_id: str) -> sax_aio.LanguageModel:
    """Returns the client of a model; the id must come from `find`."""
    if model_id not in self._models:
      # The gateway reports a full replica to its client. Waiting here would
      # hold a connection and a slot that other clients could use.
      options = sax_aio.Options(wait_if_full=False)
      self._models[model_id] = sax_aio.Model(model_id, options).LM()
    return self._models[model_id]

  async def published(self, limit: float = _MISSING_SECS) -> Mapping[str, int]:
    """Returns the ids of the models, and when this process first saw them.

    Args:
      limit: The maximum age of the list, in seconds; an older list is renewed.

    Returns:
      The time, in seconds since the epoch, by model id. The ids are sorted.

    Raises:
      errors.SaxError: The cell cannot be reached, or could not be reached just
      before.
    """
    if self._age() > limit:
      if self._error and self._clock() - self._failed < _PAUSE_SECS:
        raise self._error
      # Cancelling this caller must not end the wait of other callers.
      await asyncio.shield(self._refresh())
    return self._known

  async def check_health(self) -> None:
    """Raises errors.SaxError if the cell has not answered for some time.

    Health probes have a timeout of about one second. So this method waits only
    if there was no answer for more than 30 seconds.
    """
    self._refresh_if_old(_MISSING_SECS)
    if self._age() > _HEALTHY_SECS:
      await self.published()

  def _age(self) -> float:
    return self._clock() - self._listed

  def _refresh_if_old(self, limit: float = _FRESH_SECS) -> None:
    """Renews an old list in the background.

    Models are still served while the cell has no admin server.
    """
    pausing = self._clock() - self._failed < _PAUSE_SECS
    if self._age() > limit and not pausing:
      self._refresh()

  def _refresh(self) -> asyncio.Task[None]:
    if self._listing is None or self._listing.done():
      # The new context makes the gateway the caller, not one of its clients.
      self._listing = asyncio.create_task(
        self._list(), context=contextvars.Context()
      )
      # Reading the exception prevents asyncio's warning about unread
      # exceptions.
      self._listing.add_done_callback(lambda t: t.cancelled() or t.exception())
    return self._listing

  async def _list(self) -> None:
    options = sax_aio.AdminOptions(_LIST_TIMEOUT)
    try:
      details = await sax_aio.ListAllDetails(self.cell, options)
    except errors.SaxError as e:
      self._failed, self._error = self._clock(), e
      raise
    now = int(time.time())
    self._replicas = {detail.model_id: detail.replicas for detail in details}
    names = sorted(self._replicas)
    self._known = {name: self._known.get(name, now) for name in names}
    self._listed, self._error = self._clock(), None
    for kept in (self._models, self._described):
      for name in kept.keys() - self._known.keys():
        del kept[name]

  async def describe(self, model_id: str) -> _Description:
    """Returns a model's limits and settings, or None if no replica answers."""
    when, limits = self._described.get(model_id, (-math.inf, None))
    age = self._clock() - when
    if age < (_DESCRIBED_SECS if limits else _UNKNOWN_SECS):
      return limits
    try:
      options = sax_aio.ModelOptions(_DESCRIBE_TIMEOUT)
      limits = await self.model(model_id).Describe(options)
    except errors.SaxError:
      pass  # There is no replica, or it does not support Describe.
    self._described[model_id] = self._clock(), limits
    return limits
