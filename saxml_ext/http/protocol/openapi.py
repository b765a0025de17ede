"""Builds the OpenAPI description of all routes.

The fields of requests, with their types and ranges, come from the structs that
parse the requests.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

from saxml_ext.http.protocol import fields


class Route(NamedTuple):
  """A route.

  Attributes:
    path: The path; {name} stands for a parameter.
    method: The HTTP method.
    summary: The description, one sentence.
    needs_key: True if a request needs an API key.
    request: The struct of its requests; None if they have no body.
  """

  path: str
  method: str
  summary: str
  needs_key: bool
  request: type[fields.Request] | None


def document(routes: Iterable[Route]) -> dict[str, Any]:
  """Returns the OpenAPI document of the routes."""
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
