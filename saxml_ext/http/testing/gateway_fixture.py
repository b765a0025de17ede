"""Runs a gateway on loopback for tests, on its own event loop."""

import asyncio
from collections.abc import Mapping
import dataclasses
import threading
import types
from typing import Any

from saxml_ext.common.telemetry import web
from saxml_ext.http.protocol import templates
from saxml_ext.http.web import catalogue
from saxml_ext.http.web import gateway_app
from saxml_ext.http.web import guard


class GatewayFixture:
  """A gateway that serves until `stop`.

  Attributes:
    address: The address, "http://127.0.0.1:port".
  """

  def __init__(
    self,
    cell: str,
    options: guard.Options | None = None,
    aliases: Mapping[str, str] = types.MappingProxyType({}),
    template: str = '',
  ):
    """Starts the gateway for a cell below the root that the client uses.

    Args:
      cell: The cell id, "/sax/<cell>".
      options: The options of the gateway; None for the defaults.
      aliases: The ids or short names of models by public name.
      template: The name or the path of the chat template, if not in `options`.
    """
    self._loop = asyncio.new_event_loop()
    self._thread = threading.Thread(target=self._loop.run_forever)
    self._thread.start()
    options = options or guard.Options()
    if template:
      profile = templates.Profile(template=templates.find(template))
      options = dataclasses.replace(options, profile=profile)
    self._server = self.run(
      self._start(catalogue.Catalogue(cell, aliases=aliases), options)
    )
    self.address = f'http://127.0.0.1:{self._server.port}'

  async def _start(
    self, models: catalogue.Catalogue, options: guard.Options
  ) -> web.WebServer:
    server = web.WebServer(gateway_app.build(models, options))
    await server.start(0)
    return server

  def run(self, coroutine: Any) -> Any:
    """Runs a coroutine on the gateway's loop; returns its result."""
    return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(600)

  def stop(self) -> None:
    self.run(self._server.stop())
    self._loop.call_soon_threadsafe(self._loop.stop)
    self._thread.join()
    self._loop.close()
