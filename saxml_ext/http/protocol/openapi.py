"""The OpenAPI description of all routes.

The fields of requests, with their types and ranges, are those of the structs
that the requests are read as.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

from saxml_ext.http.protocol import fields


class Route(NamedTuple):
  """A route.

  Attributes:
    path: The path; {name} stands for a parameter.
    method: The method of HTTP.
    summary: A sentence about what it does.
    needs_key: Whether a request needs an API key.
    request: The struct of its requests; None if they have no body.
  """

  path: str
  method: str
  summary: str
  needs_key: bool
  request: type[fields.Request] | None


def document(routes: Iterable[Route]) -> dict[str, Any]:
  """Returns the OpenAPI document of routes."""
  return {
    'openapi': '3.1.0',
    'info': {
      'title': 'Models of a cell',
      'version': '1',
      'description': "OpenAI's API, and more",
    },
    'paths': {
      route.path: {route.method.lower(): _operation(route)} for route in routes
    },
    'components': {
      'securitySchemes': {'key': {'type': 'http', 'scheme': 'bearer'}}
    },
  }


def _operation(route: Route) -> dict[str, Any]:
  operation: dict[str, Any] = {
    'summary': route.summary,
    'responses': {
      '200': {'description': 'The answer.'},
      'default': {'description': "An error in OpenAI's form."},
    },
  }
  if '{name}' in route.path:
    name = {'name': 'name', 'in': 'path', 'required': True}
    operation['parameters'] = [name | {'schema': {'type': 'string'}}]
  if route.request:
    content = {'application/json': {'schema': fields.schema(route.request)}}
    operation['requestBody'] = {'required': True, 'content': content}
  if route.needs_key:
    operation['security'] = [{'key': []}]
  return operation
