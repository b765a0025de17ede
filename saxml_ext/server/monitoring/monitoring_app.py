"""Serves the pages of a model server's HTTP port.

GET  /metrics    returns the metrics for Prometheus.
GET  /healthz    returns 200 while the process answers, for Kubernetes'
                 liveness probes.
GET  /readyz     returns 200 while the server accepts requests and its initial
                 models are loaded, for Kubernetes' readiness probes.
                 ?model=ID checks one model.
POST /profile    takes a JAX profile, ?seconds=3, only from this machine.
"""

import asyncio
from collections.abc import Callable, Collection
import datetime
import http
import os

import jax
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

_CODES = {
  errors.FailedPrecondition.code: http.HTTPStatus.FORBIDDEN,
  errors.InvalidArgument.code: http.HTTPStatus.BAD_REQUEST,
  errors.PermissionDenied.code: http.HTTPStatus.FORBIDDEN,
  errors.ResourceExhausted.code: http.HTTPStatus.TOO_MANY_REQUESTS,
}

_LEAST_SECS, _MOST_SECS = 0.1, 60.0


class Profiles:
  """Takes one profile at a time."""

  def __init__(self, directory: str):
    """Stores the directory of the profiles; '' disables profiles."""
    self._directory = directory
    self._busy = False

  async def take(self, seconds: float) -> str:
    """Profiles this process, while it continues to work.

    Args:
      seconds: The length of the profile, from 0.1 to 60.

    Returns:
      The folder of the profile, for TensorBoard's profile plugin and XProf.

    Raises:
      FailedPrecondition: There is no directory for profiles.
      InvalidArgument: The length is out of range.
      ResourceExhausted: Another profile is being taken.
    """
    if not self._directory:
      raise errors.FailedPrecondition(
        'profiles are disabled on this server. Start it with --profile_dir=DIR.'
      )
    if not _LEAST_SECS <= seconds <= _MOST_SECS:
      raise errors.InvalidArgument(
        f'seconds is {seconds:g}, not from {_LEAST_SECS:g} to {_MOST_SECS:g}'
      )
    if self._busy:
      raise errors.ResourceExhausted(
        'another profile is being recorded. Try again when it is done.',
        retry_after=seconds,
      )
    self._busy = True
    try:
      return await self._take(seconds)
    finally:
      self._busy = False

  async def _take(self, seconds: float) -> str:
    now = datetime.datetime.now(datetime.UTC)
    folder = os.path.join(self._directory, now.strftime('%Y%m%d-%H%M%S'))
    # JAX's programs and devices are recorded, but not Python calls. These would
    # slow down the server too much.
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    # Both calls are slow, so they run on threads while requests are served.
    await asyncio.to_thread(
      jax.profiler.start_trace, folder, profiler_options=options
    )
    try:
      await asyncio.sleep(seconds)
    finally:
      await asyncio.to_thread(jax.profiler.stop_trace)
    return folder


class Pages:
  """The pages of the HTTP port."""

  def __init__(
    self,
    models: lifecycle.Models[servable.Servable],
    serves: Callable[[], bool],
    expected: Collection[str],
    profile_dir: str,
  ):
    """Creates the pages with their own metrics registry.

    Args:
      models: The models of the server.
      serves: A function that returns True if the server accepts calls.
      expected: The keys of models without which the server is not ready.
      profile_dir: The directory of JAX profiles; '' disables profiles.
    """
    self._models = models
    self._serves = serves
    self._expected = expected
    self._profiles = Profiles(profile_dir)
    self._registry = prometheus_client.CollectorRegistry()
    self._registry.register(collector.ModelsCollector(models))

  def app(self) -> applications.Starlette:
    """Returns the application that serves the pages."""
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
      exposition.generate_latest(registry)
      for registry in (self._registry, prometheus_client.REGISTRY)
    )
    return responses.Response(
      text, media_type=exposition.CONTENT_TYPE_PLAIN_0_0_4
    )

  async def _health(self, request: requests.Request) -> responses.Response:
    del request
    return responses.PlainTextResponse('ok\n')

  async def _ready(self, request: requests.Request) -> responses.Response:
    if not self._serves():
      return _unready('this server is starting or stopping')
    entries = self._models.entries()
    keys = request.query_params.getlist('model') or self._expected
    for key in keys:
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
    raise errors.InvalidArgument(f'seconds is {text!r}, not a number') from e


def _unready(reason: str) -> responses.Response:
  return responses.PlainTextResponse(
    reason + '\n', http.HTTPStatus.SERVICE_UNAVAILABLE
  )
