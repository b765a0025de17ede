"""The playground and the API reference, for browsers."""

import pathlib
from typing import Any

from starlette import requests
from starlette import responses as starlette_responses

from saxml_ext.http.protocol import problems
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


class Pages:
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
