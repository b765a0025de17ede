"""The models that a cell publishes, as HTTP requests name them.

Names are checked against the cell's list before a client is made for them: one
that is made up would otherwise cost a thread that watches for its replicas.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
import time

from saxml_ext.client import sax_aio
from saxml_ext.common import errors
from saxml_ext.http.protocol import problems
from saxml_ext.protobuf import completion_pb2

# So old may the list be, where it has the name in question and where not.
_FRESH_SECS = 10.0
_MISSING_SECS = 1.0
_LIST_TIMEOUT = 5.0
# A model that is reloaded may be described anew.
_DESCRIBED_SECS = 30.0
_DESCRIBE_TIMEOUT = 2.0

_List = Callable[[], Awaitable[list[str]]]


class Catalogue:
  """Published models. Belongs to one event loop.

  Attributes:
    cell: "/sax/<cell>".
    default: name of the model for requests that name none; "" for the cell's
      only one.
  """

  def __init__(
    self,
    cell: str,
    default_model: str = '',
    clock: Callable[[], float] = time.monotonic,
  ):
    """Asks nothing yet.

    Args:
      cell: "/sax/<cell>".
      default_model: see `default`.
      clock: seconds, for tests.
    """
    self.cell = cell
    self.default = default_model
    self._clock = clock
    self._listed = -float('inf')
    self._known: dict[str, int] = {}
    self._models: dict[str, sax_aio.LanguageModel] = {}
    self._described: dict[
      str, tuple[float, completion_pb2.DescribeResponse]
    ] = {}
    self._lock = asyncio.Lock()

  def full_id(self, name: str) -> str:
    """The id of a model, "/sax/test/m", also if it is called "m"."""
    return name if name.startswith('/') else f'{self.cell}/{name}'

  async def find(self, name: str | None) -> str:
    """The id of the model that a request is for.

    Raises:
      problems.Problem: it is not published, or none is named and there are
        several.
      errors.SaxError: the cell cannot be asked.
    """
    name = name or self.default
    if not name:
      return await self._only()
    model_id = self.full_id(name)
    limit = _FRESH_SECS if model_id in self._known else _MISSING_SECS
    if model_id not in await self.published(limit):
      raise problems.model_not_found(name, self.cell)
    return model_id

  async def _only(self) -> str:
    found = list(await self.published(_MISSING_SECS))
    if len(found) == 1:
      return found[0]
    raise problems.BadRequest(
      f'model: it is missing, and the cell {self.cell} publishes {len(found)}'
      ' models; name one',
      param='model',
    )

  def model(self, model_id: str) -> sax_aio.LanguageModel:
    """The client of a model that `find` has returned."""
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
    """
    if self._clock() - self._listed > limit:
      async with self._lock:
        if self._clock() - self._listed > limit:  # Nobody did meanwhile.
          await self._list()
    return self._known

  async def _list(self) -> None:
    options = sax_aio.AdminOptions(_LIST_TIMEOUT)
    found = await sax_aio.ListAll(self.cell, options)
    now = int(time.time())
    self._known = {name: self._known.get(name, now) for name in sorted(found)}
    self._listed = self._clock()
    for gone in self._models.keys() - self._known.keys():
      del self._models[gone]
    for gone in self._described.keys() - self._known.keys():
      del self._described[gone]

  async def describe(
    self, model_id: str
  ) -> completion_pb2.DescribeResponse | None:
    """What may be asked of a model; None while no replica tells."""
    told = self._described.get(model_id)
    if told and self._clock() - told[0] < _DESCRIBED_SECS:
      return told[1]
    try:
      options = sax_aio.ModelOptions(_DESCRIBE_TIMEOUT)
      response = await self.model(model_id).Describe(options)
    except errors.SaxError:
      # It has no replica, or one of another Sax; the list is of use all the
      # same.
      return told[1] if told else None
    self._described[model_id] = self._clock(), response
    return response
