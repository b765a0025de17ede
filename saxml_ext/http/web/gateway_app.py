"""The gateway as an ASGI application: its routes, and what guards them."""

from collections.abc import Awaitable, Callable
import pathlib
from typing import Any

from starlette import requests
from starlette import responses as starlette_responses
from starlette import routing
from starlette import types
from starlette.middleware import cors

from saxml_ext.http.backend import catalogue as catalogue_lib
from saxml_ext.http.protocol import openapi
from saxml_ext.http.protocol import problems
from saxml_ext.http.web import bodies
from saxml_ext.http.web import gateway_metrics as metrics_lib
from saxml_ext.http.web import gateway_options as options_lib
from saxml_ext.http.web import guard
from saxml_ext.http.web import information
from saxml_ext.http.web import json_routes
from saxml_ext.http.web import responses

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


class _Pages:
  """The handlers.

  Attributes:
    api: The OpenAPI document, which knows all routes and so comes last.
  """

  def __init__(self) -> None:
    self.api: dict[str, Any] = {}
    self._files = {
      path.name: path.read_bytes() for path in _DIRECTORY.iterdir()
    }

  def _file(self, name: str) -> starlette_responses.Response:
    if name not in self._files:
      raise problems.Problem(404, f'There is no /static/{name}.')
    kind = _KINDS[pathlib.PurePath(name).suffix]
    return starlette_responses.Response(
      self._files[name], headers=_HEADERS, media_type=kind
    )

  async def playground(
    self, request: requests.Request
  ) -> starlette_responses.Response:
    """/."""
    del request
    return self._file('playground.html')

  async def reference(
    self, request: requests.Request
  ) -> starlette_responses.Response:
    """/docs."""
    del request
    return self._file('docs.html')

  async def openapi(
    self, request: requests.Request
  ) -> starlette_responses.Response:
    """/openapi.json."""
    del request
    return responses.of_json(self.api)

  async def static(
    self, request: requests.Request
  ) -> starlette_responses.Response:
    """/static/{name}."""
    return self._file(request.path_params['name'])


_Getter = Callable[[requests.Request], Awaitable[starlette_responses.Response]]
_EXPOSED_HEADERS = ('x-request-id', 'retry-after', 'retry-after-ms')


def build(
  catalogue: catalogue_lib.Catalogue, options: options_lib.Options
) -> types.ASGIApp:
  """Makes the application; call on the event loop that will serve it."""
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
  options: options_lib.Options,
  metrics: metrics_lib.Metrics,
) -> list[routing.Route]:
  told = information.Information(catalogue, metrics)
  asked = json_routes.Work(catalogue, options)
  admission = guard.Admission(options, metrics)
  reader = bodies.Reader(options.max_body_bytes, options.most_bodies)

  paths: list[openapi.Path] = []

  def route(
    path: str, app: types.ASGIApp, method: str, needs_key: bool
  ) -> routing.Route:
    paths.append((path, method, needs_key))
    return routing.Route(path, _Named(app, path), methods=[method])

  def get(path: str, handler: _Getter) -> routing.Route:
    return route(path, routing.request_response(handler), 'GET', False)

  def guarded(path: str, handler: _Getter) -> routing.Route:
    async def counted(
      request: requests.Request,
    ) -> starlette_responses.Response:
      with admission.place():
        return await handler(request)

    app = admission.around(routing.request_response(counted))
    return route(path, app, 'GET', True)

  def post(path: str, handler: json_routes.Handler) -> routing.Route:
    app = admission.around(json_routes.Posted(handler, reader, admission.place))
    return route(path, app, 'POST', True)

  shown = _Pages()
  routes = [
    post('/v1/completions', asked.completions),
    post('/v1/chat/completions', asked.chat_completions),
    post('/v1/embeddings', asked.embeddings),
    guarded('/v1/models', told.models),
    guarded('/v1/models/{name:path}', told.model),
    post('/tokenize', asked.tokenize),
    post('/detokenize', asked.detokenize),
    *(post(path, asked.predict) for path in options.predict_routes),
    *(get(path, told.health) for path in options.health_routes),
    get('/health/live', told.live),
    get('/version', told.version),
    get('/metrics', told.metrics),
    get('/', shown.playground),
    get('/docs', shown.reference),
    get('/openapi.json', shown.openapi),
    get('/static/{name}', shown.static),
  ]
  shown.api = openapi.document(
    paths, options.health_routes, options.predict_routes
  )
  return routes


class _Named:
  """Notes which route a request took."""

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
  raise problems.Problem(404, f'there is no {scope["path"]}', code='not_found')
