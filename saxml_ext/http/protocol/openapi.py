"""Builds the OpenAPI description of all routes.

The fields of requests, with their types and ranges, come from the structs that
parse the requests. reference.json has their groups, descriptions and examples.
"""

from collections.abc import Iterable
import json
import pathlib
from typing import Any, NamedTuple

from saxml_ext.http.protocol import fields

_REFERENCE = json.loads(
  (pathlib.Path(__file__).parent / 'reference.json').read_text('utf-8')
)
# Maps each described field to its group and its description.
_FIELDS = {
  name: {'x-group': group, 'description': text}
  for group, described in _REFERENCE['groups'].items()
  for name, text in described.items()
}
_WITHOUT_EFFECT = 'Accepted without effect'


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
  examples = _REFERENCE['examples'].get(f'{route.method} {route.path}', {})
  operation: dict[str, Any] = {
    'summary': route.summary,
    'responses': {
      '200': {'description': 'The answer.'}
      | _content(_examples(examples, 'response')),
      'default': {'description': "An error in OpenAI's form."}
      | _content({'example': _REFERENCE['error']}),
    },
  }
  if '{name}' in route.path:
    name = {'name': 'name', 'in': 'path', 'required': True}
    operation['parameters'] = [name | {'schema': {'type': 'string'}}]
  if route.request:
    content = {'schema': _schema(route.request)}
    content |= _examples(examples, 'request')
    operation['requestBody'] = {'required': True} | _content(content)
  if route.needs_key:
    operation['security'] = [{'key': []}]
  return operation


def _content(media: dict[str, Any]) -> dict[str, Any]:
  return {'content': {'application/json': media}} if media else {}


def _examples(examples: dict[str, Any], member: str) -> dict[str, Any]:
  examples = {
    name: {'value': example[member]}
    for name, example in examples.items()
    if member in example
  }
  return {'examples': examples} if examples else {}


def _schema(kind: type[fields.Request]) -> dict[str, Any]:
  """Returns the schema of a request, with groups and descriptions."""
  schema = fields.schema(kind)
  order = [*_FIELDS, *schema['properties']]
  schema['properties'] = dict(
    sorted(schema['properties'].items(), key=lambda item: order.index(item[0]))
  )
  for name, field in schema['properties'].items():
    if name in kind.HARMLESS or name in kind.NEUTRAL:
      field['x-group'] = _WITHOUT_EFFECT
      continue
    field |= _FIELDS.get(name, {})
    for member, inner in field.get('properties', {}).items():
      inner |= _FIELDS.get(f'{name}.{member}', {})
  return schema
