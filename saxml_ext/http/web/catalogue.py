"""The models that a cell publishes, as HTTP requests name them.

Names are checked against the cell's list before a client is made for them: one
that is made up would otherwise cost a thread that watches for its replicas.
"""

import asyncio
from collections.abc import Callable, Mapping
import contextvars
import math
import time
import types

from saxml_ext.client import sax_aio
from saxml_ext.common import errors
from saxml_ext.http.protocol import problems
from saxml_ext.protobuf import completion_pb2

# So old may the list be: of models that it has, of others, and where people
# look after the cell's health.
_FRESH_SECS = 10.0
_MISSING_SECS = 1.0
_HEALTHY_SECS = 30.0
# The admin server is asked so long, and after it failed not again before that.
_LIST_TIMEOUT = 2.0
_PAUSE_SECS = 1.0
# A model that is reloaded may be described anew, and one that nobody could
# describe gets a replica.
_DESCRIBED_SECS = 30.0
_UNKNOWN_SECS = 5.0
_DESCRIBE_TIMEOUT = 2.0

_Description = completion_pb2.DescribeResponse | None


class Catalogue:
  """Published models. Belongs to one event loop.

  Attributes:
    cell: "/sax/<cell>".
    default: name of the model for requests that name none; "" for the cell's
      only one.
    aliases: Public names of models -> their ids.
  """

  def __init__(
    self,
    cell: str,
    default_model: str = '',
    aliases: Mapping[str, str] = types.MappingProxyType({}),
    clock: Callable[[], float] = time.monotonic,
  ):
    """Asks nothing yet.

    Args:
      cell: "/sax/<cell>".
      default_model: The attribute `default`.
      aliases: Public names -> ids or short names.
      clock: seconds, for tests.
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
    self._models: dict[str, sax_aio.LanguageModel] = {}
    self._described: dict[str, tuple[float, _Description]] = {}

  def full_id(self, name: str) -> str:
    """Returns the id of a model, "/sax/test/m", also if it is called "m"."""
    if name in self.aliases:
      return self.aliases[name]
    return name if name.startswith('/') else f'{self.cell}/{name}'

  def names(self, model_id: str) -> list[str]:
    """Returns the public names of a model, its id if it has none."""
    found = [name for name, of in self.aliases.items() if of == model_id]
    return found or [model_id]

  async def find(self, name: str | None) -> str:
    """Returns the id of the model that a request is for.

    Raises:
      problems.Problem: it is not published, or none is named and there are
        several.
      errors.SaxError: the cell cannot be asked.
    """
    name = name or self.default
    if not name:
      return await self._only()
    model_id = self.full_id(name)
    if model_id in self._known:
      self._refresh_if_old()
    elif model_id not in await self.published(_MISSING_SECS):
      raise problems.model_not_found(name, self.cell)
    return model_id

  async def _only(self) -> str:
    self._refresh_if_old()
    found = list(self._known or await self.published(_MISSING_SECS))
    if len(found) == 1:
      return found[0]
    raise problems.BadRequest(
      f'model: it is missing, and the cell {self.cell} publishes {len(found)}'
      ' models; name one',
      param='model',
    )

  def model(self, model_id: str) -> sax_aio.LanguageModel:
    """Returns the client of a model that `find` has returned."""
    if model_id not in self._models:
      # A full replica is for the client of the gateway to know of: whoever
      # waits holds a connection and a place that others could have.
      options = sax_aio.Options(wait_if_full=False)
      self._models[model_id] = sax_aio.Model(model_id, options).LM()
    return self._models[model_id]

  async def published(self, limit: float = _MISSING_SECS) -> Mapping[str, int]:
    """Ids of the models, and since when this process knows them.

    Args:
      limit: the list is asked for anew if it is older, in seconds.

    Returns:
      id -> seconds since the epoch, in the order of ids.

    Raises:
      errors.SaxError: the cell cannot be asked, or could not a moment ago.
    """
    if self._age() > limit:
      if self._error and self._clock() - self._failed < _PAUSE_SECS:
        raise self._error
      # Whoever else waits for it, goes on waiting when this one is cancelled.
      await asyncio.shield(self._refresh())
    return self._known

  async def check_health(self) -> None:
    """Raises errors.SaxError if the cell could not be asked for a while.

    Probes wait for a second, so this waits only where there was no answer at
    all for longer than that while.
    """
    self._refresh_if_old(_MISSING_SECS)
    if self._age() > _HEALTHY_SECS:
      await self.published()

  def _age(self) -> float:
    return self._clock() - self._listed

  def _refresh_if_old(self, limit: float = _FRESH_SECS) -> None:
    """Has the list renewed, which nobody waits for.

    Models go on to be served while the cell has no admin server.
    """
    pausing = self._clock() - self._failed < _PAUSE_SECS
    if self._age() > limit and not pausing:
      self._refresh()

  def _refresh(self) -> asyncio.Task[None]:
    if self._listing is None or self._listing.done():
      # In a context of its own: the gateway asks, not one of its clients.
      self._listing = asyncio.create_task(
        self._list(), context=contextvars.Context()
      )
      # Looked at, or asyncio complains of an error that nobody waited for.
      self._listing.add_done_callback(lambda t: t.cancelled() or t.exception())
    return self._listing

  async def _list(self) -> None:
    options = sax_aio.AdminOptions(_LIST_TIMEOUT)
    try:
      found = await sax_aio.ListAll(self.cell, options)
    except errors.SaxError as e:
      self._failed, self._error = self._clock(), e
      raise
    now = int(time.time())
    self._known = {name: self._known.get(name, now) for name in sorted(found)}
    self._listed, self._error = self._clock(), None
    for kept in (self._models, self._described):
      for gone in kept.keys() - self._known.keys():
        del kept[gone]

  async def describe(self, model_id: str) -> _Description:
    """Returns what may be asked of a model; None while no replica tells."""
    when, told = self._described.get(model_id, (-math.inf, None))
    age = self._clock() - when
    if age < (_DESCRIBED_SECS if told else _UNKNOWN_SECS):
      return told
    try:
      options = sax_aio.ModelOptions(_DESCRIBE_TIMEOUT)
      told = await self.model(model_id).Describe(options)
    except errors.SaxError:
      pass  # No replica, or one of another Sax: the list is still of use.
    self._described[model_id] = self._clock(), told
    return told
