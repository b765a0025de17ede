"""Builds the gateway's ASGI application: the routes and their checks."""

import asyncio
from collections.abc import Awaitable, Callable
import contextlib
import math
import pathlib
from typing import Any, TypeAlias

from starlette import requests
from starlette import responses
from starlette import routing
from starlette import types
from starlette.middleware import cors

from saxml_ext.common import errors
from saxml_ext.http.protocol import chat
from saxml_ext.http.protocol import completions
from saxml_ext.http.protocol import fields
from saxml_ext.http.protocol import openapi
from saxml_ext.http.protocol import problems
from saxml_ext.http.protocol import text_requests
from saxml_ext.http.web import bodies
from saxml_ext.http.web import catalogue as catalogue_lib
from saxml_ext.http.web import gateway_metrics as metrics_lib
from saxml_ext.http.web import guard
from saxml_ext.http.web import handlers
from saxml_ext.http.web import json_routes
from saxml_ext.protobuf import completion_pb2

# The version of the API, not of a release.
_VERSION = '1'
_DIRECTORY = pathlib.Path(__file__).parent / 'static'
_KINDS = {'.css': 'text/css', '.html': 'text/html', '.js': 'text/javascript'}
_HEADERS = {
  'Content-Security-Policy': (
    "default-src 'none'; script-src 'self'; style-src 'self';"
    " connect-src 'self'; base-uri 'none'; form-action 'none';"
    " frame-ancestors 'none'"
  ),
  'X-Content-Type-Options': 'nosniff',
  'Referrer-Policy': 'no-referrer',
  'Cache-Control': 'no-cache',
}


# The result of a handler: a response, or a JSON object.
_Answer: TypeAlias = responses.Response | dict[str, Any]
_Handler = Callable[[requests.Request], Awaitable[_Answer]]
_EXPOSED_HEADERS = ('x-request-id', 'retry-after', 'retry-after-ms')


class _Information:
  """The handlers of pages, and of requests about the gateway and the cell.

  Attributes:
    api: The OpenAPI document. It is set last, because it contains all routes.
  """

  def __init__(
    self,
    catalogue: catalogue_lib.Catalogue,
    metrics: metrics_lib.Metrics,
    options: guard.Options,
  ):
    self.api: dict[str, Any] = {}
    self._catalogue = catalogue
    self._options = options
    self._metrics = metrics
    self._files = {
      path.name: path.read_bytes() for path in _DIRECTORY.iterdir()
    }

  def file(self, summary: str, name: str = '') -> _Handler:
    """Returns the handler of one page, or of the file that a path names."""

    async def handler(request: requests.Request) -> _Answer:
      file = name or request.path_params['name']
      if file not in self._files:
        raise problems.Problem(404, f'There is no /static/{file}.')
      kind = _KINDS[pathlib.PurePath(file).suffix]
      return responses.Response(
        self._files[file], headers=_HEADERS, media_type=kind
      )

    handler.__doc__ = summary
    return handler

  async def openapi(self, _: requests.Request) -> _Answer:
    """Describes this API for programs."""
    return self.api

  async def models(self, _: requests.Request) -> _Answer:
    """Lists the published models."""
    published = await self._catalogue.published()
    calls = [
      self._model(name, model_id, created)
      for model_id, created in published.items()
      for name in self._catalogue.names(model_id)
    ]
    page = self._options.status_page
    return {'object': 'list', 'data': await asyncio.gather(*calls)} | (
      {'status_page': page} if page else {}
    )

  async def model(self, request: requests.Request) -> _Answer:
    """Describes one published model."""
    name = request.path_params['name']
    model_id = await self._catalogue.find(name)
    created = (await self._catalogue.published(math.inf))[model_id]
    if name not in self._catalogue.aliases:
      name = model_id
    return await self._model(name, model_id, created)

  async def _model(
    self, name: str, model_id: str, created: int
  ) -> dict[str, Any]:
    state, reason = self._catalogue.state(model_id)
    limits = None
    if state not in catalogue_lib.NOT_READY:
      limits = await self._catalogue.describe(model_id)
    return {
      'id': name,
      'object': 'model',
      # The time when this gateway first saw the model. The cell does not report
      # it.
      'created': created,
      'owned_by': 'sax',
      'root': limits.checkpoint_path if limits else None,
      'parent': None,
      'max_model_len': limits.max_model_len if limits else None,
      'status': state or None,
      'status_reason': reason or None,
      **self._facts(model_id, limits),
    }

  def _facts(
    self, model_id: str, limits: completion_pb2.DescribeResponse | None
  ) -> dict[str, Any]:
    """Returns what a model is and how it answers; see static/models.js."""
    profile = self._options.profile_of(model_id)
    facts = {'is_chat': profile.template.is_chat, 'defaults': profile.defaults}
    if limits is None:
      return facts
    if not limits.max_samples:
      facts['defaults'] = {'use_beam_search': True, 'best_of': limits.max_beams}
    return facts | {
      'family': limits.family or None,
      'parameters': limits.num_parameters or None,
      'format': limits.format or None,
    }

  async def health(self, _: requests.Request) -> _Answer:
    """Returns 200 if the cell's admin server answers, or did just now."""
    try:
      await self._catalogue.check_health()
    except errors.SaxError as e:
      raise problems.Problem(
        503,
        f'the cell {self._catalogue.cell} is not available: {e.message}',
        kind='server_error',
        code='unavailable',
      ) from e
    waiting = self._catalogue.not_ready()
    return {'status': 'ok'} | ({'models': waiting} if waiting else {})

  async def live(self, _: requests.Request) -> _Answer:
    """Returns 200 if the gateway itself answers."""
    return {'status': 'ok'}

  async def version(self, _: requests.Request) -> _Answer:
    """Returns the version of this API."""
    return {'version': _VERSION}

  async def metrics(self, request: requests.Request) -> _Answer:
    """Returns metrics for Prometheus."""
    text, kind = self._metrics.text(request.headers.get('accept', ''))
    return responses.Response(text, headers={'content-type': kind})


def build(
  catalogue: catalogue_lib.Catalogue, options: guard.Options
) -> types.ASGIApp:
  """Builds the application; must be called on the event loop that serves it."""
  metrics = metrics_lib.Metrics()
  router = routing.Router(
    _routes(catalogue, options, metrics),
    redirect_slashes=False,
    default=_not_found,
  )
  app: types.ASGIApp = guard.Guard(router, metrics, options)
  if options.allowed_origins:
    app = cors.CORSMiddleware(
      app,
      allow_origins=options.allowed_origins,
      allow_methods=('GET', 'POST'),
      allow_headers=('*',),
      expose_headers=_EXPOSED_HEADERS,
    )
  return app


def _routes(
  catalogue: catalogue_lib.Catalogue,
  options: guard.Options,
  metrics: metrics_lib.Metrics,
) -> list[routing.Route]:
  information = _Information(catalogue, metrics, options)
  admission = guard.Admission(options, metrics)
  json = json_routes.JsonRoutes(options, admission)
  cell = handlers.Handlers(catalogue, options, json)
  described: list[openapi.Route] = []

  def route(
    path: str,
    handler: _Handler | json_routes.Handler,
    app: types.ASGIApp,
    needs_key: bool,
    kind: type[fields.Request] | None = None,
  ) -> routing.Route:
    method = 'POST' if kind else 'GET'
    summary, *_ = (handler.__doc__ or '').splitlines() or ['']
    shown = path.replace(':path', '')
    described.append(openapi.Route(shown, method, summary, needs_key, kind))
    app = admission.around(app) if needs_key else app
    return routing.Route(path, _Named(app, path), methods=[method])

  def get(
    path: str, handler: _Handler, needs_key: bool = False
  ) -> routing.Route:
    slot = admission.slot if needs_key else contextlib.nullcontext

    async def respond(request: requests.Request) -> responses.Response:
      with slot():
        answer = await handler(request)
      return (
        bodies.json_response(answer) if isinstance(answer, dict) else answer
      )

    return route(path, handler, routing.request_response(respond), needs_key)

  def post(
    path: str, handler: json_routes.Handler, kind: type[fields.Request]
  ) -> routing.Route:
    return route(path, handler, json.route(handler, kind), True, kind)

  def predict(path: str) -> routing.Route:
    return post(path, cell.predict, text_requests.Predict)

  routes = [
    post('/v1/completions', cell.completions, completions.Request),
    post('/v1/chat/completions', cell.chat_completions, chat.Request),
    post('/v1/embeddings', cell.embeddings, text_requests.Embeddings),
    get('/v1/models', information.models, needs_key=True),
    get('/v1/models/{name:path}', information.model, needs_key=True),
    post('/tokenize', cell.tokenize, text_requests.Tokenize),
    post('/detokenize', cell.detokenize, text_requests.Detokenize),
    *map(predict, options.predict_routes),
    *(get(path, information.health) for path in options.health_routes),
    get('/health/live', information.live),
    get('/version', information.version),
    get('/metrics', information.metrics),
    get('/', information.file('Shows the playground.', 'playground.html')),
    get('/docs', information.file('Shows this reference.', 'docs.html')),
    get('/openapi.json', information.openapi),
    get(
      '/static/{name}',
      information.file('Returns a script or style of the pages.'),
    ),
  ]
  information.api = openapi.document(described)
  return routes


class _Named:
  """An ASGI application that records the route of a request."""

  def __init__(self, app: types.ASGIApp, path: str):
    self._app = app
    self._path = path

  async def __call__(
    self, scope: types.Scope, receive: types.Receive, send: types.Send
  ) -> None:
    scope['state']['record'].route = self._path
    await self._app(scope, receive, send)


async def _not_found(
  scope: types.Scope, receive: types.Receive, send: types.Send
) -> None:
  del receive, send
  raise problems.Problem(
    404, f'the path {scope["path"]} does not exist', code='not_found'
  )
