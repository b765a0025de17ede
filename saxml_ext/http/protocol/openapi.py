"""The OpenAPI description of all routes.

The fields of requests, with their types and ranges, are those of the structs
that the requests are read as.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from saxml_ext.http.protocol import chat
from saxml_ext.http.protocol import completions
from saxml_ext.http.protocol import fields
from saxml_ext.http.protocol import text_requests

# A path, its method, and whether it needs a key.
Path = tuple[str, str, bool]


class _Route(NamedTuple):
  """A route: its summary, and the struct of its requests."""

  summary: str
  request: type[fields.Request] | None = None


_PREDICT = _Route(
  'Completions in the form of Vertex AI.', text_requests.Predict
)
_HEALTH = _Route("Whether the cell's admin server answers.")
_ROUTES: Mapping[str, _Route] = {
  '/v1/completions': _Route(
    'Continues a prompt, or several.', completions.Request
  ),
  '/v1/chat/completions': _Route('Answers a conversation.', chat.Request),
  '/v1/embeddings': _Route('Embeds texts.', text_requests.Embeddings),
  '/v1/models': _Route('The published models.'),
  '/v1/models/{name}': _Route('One published model.'),
  '/tokenize': _Route(
    'Splits a prompt or a conversation into tokens.', text_requests.Tokenize
  ),
  '/detokenize': _Route(
    'Returns the text of tokens.', text_requests.Detokenize
  ),
  '/health/live': _Route('Whether the gateway itself answers.'),
  '/version': _Route('The version of this API.'),
  '/metrics': _Route('Metrics for Prometheus.'),
  '/': _Route('The playground.'),
  '/docs': _Route('This reference.'),
  '/openapi.json': _Route('This reference for programs.'),
  '/static/{name}': _Route('Scripts and styles of the pages.'),
}


def document(
  routes: Iterable[Path],
  health: Collection[str],
  predictions: Collection[str],
) -> dict[str, Any]:
  """Returns the OpenAPI document.

  Args:
    routes: The path, the method and whether a key is needed, of all routes.
    health: The paths of health checks, which flags choose.
    predictions: The paths of Vertex AI's predictions, which flags choose.
  """
  known = {
    **_ROUTES,
    **dict.fromkeys(health, _HEALTH),
    **dict.fromkeys(predictions, _PREDICT),
  }
  paths: dict[str, Any] = {}
  for path, method, guarded in routes:
    path = path.replace(':path', '')
    paths[path] = {method.lower(): _operation(path, known[path], guarded)}
  return {
    'openapi': '3.1.0',
    'info': {
      'title': 'Models of a cell',
      'version': '1',
      'description': "OpenAI's API, and more",
    },
    'paths': paths,
    'components': {
      'securitySchemes': {'key': {'type': 'http', 'scheme': 'bearer'}}
    },
  }


def _operation(path: str, route: _Route, guarded: bool) -> dict[str, Any]:
  operation: dict[str, Any] = {
    'summary': route.summary,
    'responses': {
      '200': {'description': 'The answer.'},
      'default': {'description': "An error in OpenAI's form."},
    },
  }
  if '{name}' in path:
    name = {'name': 'name', 'in': 'path', 'required': True}
    operation['parameters'] = [name | {'schema': {'type': 'string'}}]
  if route.request:
    content = {'application/json': {'schema': fields.schema(route.request)}}
    operation['requestBody'] = {'required': True, 'content': content}
  if guarded:
    operation['security'] = [{'key': []}]
  return operation
