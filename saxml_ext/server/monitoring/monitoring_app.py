"""The pages of a model server's HTTP port.

GET  /metrics    for Prometheus
GET  /healthz    200 as long as the process answers: Kubernetes' liveness
GET  /readyz     200 while it takes requests and has what it was started with;
                 ?model=ID asks for one model: Kubernetes' readiness
POST /profile    takes a JAX profile, ?seconds=3, from this machine only
"""

from collections.abc import Callable, Collection
import http

import prometheus_client
from prometheus_client import exposition
from starlette import applications
from starlette import requests
from starlette import responses
from starlette import routing

from saxml_ext.common import errors
from saxml_ext.common.telemetry import origin
from saxml_ext.server.lifecycle import entry as entry_lib
from saxml_ext.server.lifecycle import lifecycle
from saxml_ext.server.loading import servable
from saxml_ext.server.monitoring import collector
from saxml_ext.server.monitoring import profiles as profiles_lib

_CODES = {
  errors.FailedPrecondition.code: http.HTTPStatus.FORBIDDEN,
  errors.InvalidArgument.code: http.HTTPStatus.BAD_REQUEST,
  errors.PermissionDenied.code: http.HTTPStatus.FORBIDDEN,
  errors.ResourceExhausted.code: http.HTTPStatus.TOO_MANY_REQUESTS,
}


class Pages:
  """What they show."""

  def __init__(
    self,
    models: lifecycle.Models[servable.Servable],
    serves: Callable[[], bool],
    expected: Collection[str],
    profiles: profiles_lib.Profiles,
  ):
    """Registers nothing outside of itself.

    Args:
      models: of the server.
      serves: whether calls are taken.
      expected: keys of models that must be loaded for the server to be ready.
      profiles: takes them.
    """
    self._models = models
    self._serves = serves
    self._expected = expected
    self._profiles = profiles
    self._registry = prometheus_client.CollectorRegistry()
    self._registry.register(collector.ModelsCollector(models))

  def app(self) -> applications.Starlette:
    """The application that serves them."""
    return applications.Starlette(
      routes=[
        routing.Route('/metrics', self._metrics),
        routing.Route('/healthz', self._health),
        routing.Route('/readyz', self._ready),
        routing.Route('/profile', self._profile, methods=['POST']),
      ]
    )

  async def _metrics(self, request: requests.Request) -> responses.Response:
    del request
    text = b''.join(
      exposition.generate_latest(each)
      for each in (self._registry, prometheus_client.REGISTRY)
    )
    return responses.Response(
      text, media_type=exposition.CONTENT_TYPE_PLAIN_0_0_4
    )

  async def _health(self, request: requests.Request) -> responses.Response:
    del request
    return responses.PlainTextResponse('ok\n')

  async def _ready(self, request: requests.Request) -> responses.Response:
    if not self._serves():
      return _unready('this server takes no calls: it starts or stops')
    entries = self._models.entries()
    asked = request.query_params.getlist('model') or self._expected
    for key in asked:
      entry = entries.get(key)
      state = 'absent' if entry is None else entry.state.name
      if state != entry_lib.State.LOADED.name:
        return _unready(f'{key} is {state}')
    return responses.PlainTextResponse('ok\n')

  async def _profile(self, request: requests.Request) -> responses.Response:
    try:
      origin.check(request)
      folder = await self._profiles.take(_seconds(request))
    except errors.SaxError as e:
      return responses.PlainTextResponse(
        e.message + '\n', _CODES.get(e.code, http.HTTPStatus.BAD_GATEWAY)
      )
    return responses.JSONResponse({'directory': folder})


def _seconds(request: requests.Request) -> float:
  text = request.query_params.get('seconds', '3')
  try:
    return float(text)
  except ValueError as e:
    raise errors.InvalidArgument(f'seconds is {text!r}; give a number') from e


def _unready(reason: str) -> responses.Response:
  return responses.PlainTextResponse(
    reason + '\n', http.HTTPStatus.SERVICE_UNAVAILABLE
  )
