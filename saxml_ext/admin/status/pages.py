"""Serves the admin server's HTTP port: status pages, forms and metrics.

/                        the cell
/model/sax/<cell>/<name> one model
/server/<host:port>      one model server
/publish, /unpublish     forms for permitted users
/metrics                 metrics for Prometheus
"""

from collections.abc import Awaitable, Callable
import functools
import http
from typing import TypeAlias
import urllib.parse

from absl import logging
import prometheus_client
from prometheus_client import exposition
from starlette import applications
from starlette import requests
from starlette import responses
from starlette import routing

from saxml_ext.admin.status import changes as changes_lib
from saxml_ext.admin.status import status_page
from saxml_ext.common import errors
from saxml_ext.common.pages import page_kit

# Pages load these files. The values are their content type and their parts.
_STATIC = {
  'page.css': ('text/css', ('page.css', 'status.css')),
  'live.js': ('text/javascript', ('live.js',)),
}
_HEADERS = {
  'Content-Security-Policy': (
    "default-src 'none'; script-src 'self'; style-src 'self';"
    " img-src 'self'; connect-src 'self'; form-action 'self';"
    " base-uri 'none'; frame-ancestors 'none'"
  ),
  'X-Content-Type-Options': 'nosniff',
  'Referrer-Policy': 'same-origin',
  'Cache-Control': 'no-store',
}
_CODES = {
  errors.NotFound.code: http.HTTPStatus.NOT_FOUND,
  errors.InvalidArgument.code: http.HTTPStatus.BAD_REQUEST,
  errors.AlreadyExists.code: http.HTTPStatus.CONFLICT,
  errors.PermissionDenied.code: http.HTTPStatus.FORBIDDEN,
  errors.Unimplemented.code: http.HTTPStatus.NOT_IMPLEMENTED,
}

_Request: TypeAlias = requests.Request
_Response: TypeAlias = responses.Response
_Handler: TypeAlias = Callable[
  ['Pages', requests.Request], Awaitable[responses.Response]
]


def _guarded(handler: _Handler) -> _Handler:
  """Converts an error of a handler to a plain-text response."""

  @functools.wraps(handler)
  async def guarded(self: 'Pages', request: _Request) -> _Response:
    try:
      return await handler(self, request)
    except errors.SaxError as e:
      status = _CODES.get(e.code, http.HTTPStatus.SERVICE_UNAVAILABLE)
      text = e.message
    except Exception as e:  # pylint: disable=broad-exception-caught
      logging.exception('failed to render the status page %s', request.url.path)
      status, text = http.HTTPStatus.INTERNAL_SERVER_ERROR, str(e)
    return responses.PlainTextResponse(text + '\n', status, _HEADERS)

  return guarded


class Pages:
  """The handlers of the HTTP requests."""

  def __init__(
    self,
    render: Callable[[str, bool], str],
    changes: changes_lib.Changes,
    registry: prometheus_client.CollectorRegistry,
  ):
    """Does nothing yet.

    Args:
      render: A function that returns the page at a path, and raises NotFound.
        Its second argument is True to offer changes.
      changes: The forms.
      registry: The registry of metrics, in addition to the process's own.
    """
    self._render = render
    self._changes = changes
    self._registry = registry

  def app(self) -> applications.Starlette:
    """Returns the application that serves the pages."""
    both = ['GET', 'POST']
    return applications.Starlette(
      routes=[
        routing.Route('/metrics', self._metrics),
        routing.Route('/static/{name}', self._static),
        routing.Route('/publish', self._publish, methods=both),
        routing.Route('/unpublish', self._unpublish, methods=both),
        routing.Route('/{path:path}', self._page),
      ]
    )

  @_guarded
  async def _page(self, request: _Request) -> _Response:
    path = request.url.path
    if path != '/' and not path.startswith(('/model/', '/server/')):
      # Stock Sax shows the cell here, but only browsers request such paths.
      return _html(
        status_page.message(
          'Not found', 'Not found', f'There is no page {path}.', live=False
        ),
        http.HTTPStatus.NOT_FOUND,
      )
    offered = self._changes.allowed(request)
    try:
      return _html(self._render(path, offered))
    except errors.InvalidArgument as e:  # The path is malformed.
      raise errors.NotFound(e.message) from e

  @_guarded
  async def _metrics(self, request: _Request) -> _Response:
    del request
    text = b''.join(
      exposition.generate_latest(registry)
      for registry in (self._registry, prometheus_client.REGISTRY)
    )
    return _Response(text, media_type=exposition.CONTENT_TYPE_PLAIN_0_0_4)

  @_guarded
  async def _static(self, request: _Request) -> _Response:
    name = request.path_params['name']
    if name not in _STATIC:
      raise errors.NotFound(f'this server has no file {name}')
    kind, names = _STATIC[name]
    text = '\n'.join(page_kit.asset(status_page.TEMPLATES / n) for n in names)
    return _Response(text, media_type=kind, headers=_HEADERS)

  @_guarded
  async def _publish(self, request: _Request) -> _Response:
    if request.method != 'POST':
      return _html(self._changes.publish_form(request, {}))
    given = await _form(request)
    try:
      if 'confirmed' not in given:
        return _html(self._changes.confirm_publish(request, given))
      model_id = await self._changes.publish(request, given)
    except errors.PermissionDenied:
      raise
    except errors.SaxError as e:
      page = self._changes.publish_form(request, given, e.message)
      return _html(page, _CODES.get(e.code, http.HTTPStatus.BAD_GATEWAY))
    return _go_to('/model' + model_id)

  @_guarded
  async def _unpublish(self, request: _Request) -> _Response:
    if request.method != 'POST':
      model_id = request.query_params.get('model', '')
      return _html(self._changes.confirm_unpublish(request, model_id))
    await self._changes.unpublish(request, await _form(request))
    return _go_to('/')


def _html(text: str, status: int = http.HTTPStatus.OK) -> _Response:
  return responses.HTMLResponse(text, status, _HEADERS)


def _go_to(path: str) -> _Response:
  return responses.RedirectResponse(
    path, http.HTTPStatus.SEE_OTHER, {**_HEADERS}
  )


async def _form(request: _Request) -> dict[str, str]:
  """Returns the fields of a submitted form, with the last value of each."""
  kind = request.headers.get('content-type', '').partition(';')[0].strip()
  if kind != 'application/x-www-form-urlencoded':
    raise errors.InvalidArgument(f'the content type is {kind!r}. Send a form')
  body = b''
  async for part in request.stream():
    body += part
    if len(body) > changes_lib.MAX_BYTES:
      raise errors.InvalidArgument(
        f'the form has more than {changes_lib.MAX_BYTES} bytes'
      )
  text = body.decode('utf-8', 'replace')
  return dict(urllib.parse.parse_qsl(text, keep_blank_values=True))
