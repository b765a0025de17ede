"""The OpenAPI description of all routes.

The fields of requests, with their types and ranges, are what the parsers ask
for: they are run on a request that records it.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
import dataclasses
from typing import Any

from saxml_ext.http.protocol import chat
from saxml_ext.http.protocol import completions
from saxml_ext.http.protocol import embeddings
from saxml_ext.http.protocol import fields as fields_lib
from saxml_ext.http.protocol import model_profiles
from saxml_ext.http.protocol import predict
from saxml_ext.http.protocol import templates
from saxml_ext.http.protocol import tokens

Schema = dict[str, Any]
# A path, its method, and whether it needs a key.
Path = tuple[str, str, bool]

_TEXT: Schema = {'type': 'string'}
_IDS: Schema = {'type': 'array', 'items': {'type': 'integer', 'minimum': 0}}
_OBJECTS: Schema = {'type': 'array', 'items': {'type': 'object'}}
_MESSAGES: Schema = _OBJECTS | {'description': 'each with role and content'}
# Fields that parsers read in a form of their own.
_RAW: Mapping[str, Schema] = {
  'early_stopping': {'oneOf': [{'type': 'boolean'}, {'enum': ['never']}]},
  'input': {'oneOf': [_TEXT, {'type': 'array', 'items': _TEXT}]},
  'instances': _OBJECTS
  | {'description': "each with a completion's or a chat completion's fields"},
  'messages': _MESSAGES,
  'parameters': {'type': 'object', 'description': 'fields of all instances'},
  'prompt': {
    'oneOf': [
      _TEXT,
      {'type': 'array', 'items': _TEXT},
      _IDS,
      {'type': 'array', 'items': _IDS},
    ]
  },
}
_SAMPLE = [{'role': 'user', 'content': 'x'}]


class _Recorder(fields_lib.Fields):
  """A request that records what a parser asks it for.

  Attributes:
    properties: The schema of each field, by name.
  """

  def __init__(self, members: Mapping[str, Any], where: str = ''):
    super().__init__(members, where)
    self.properties: dict[str, Schema] = {}

  def _note(self, name: str, **schema: Any) -> None:
    self.properties.setdefault(name, schema)

  def raw(self, name: str) -> Any:
    self._note(name, **_RAW.get(name, {}))
    return super().raw(name)

  def flag(self, name: str) -> bool | None:
    self._note(name, type='boolean')
    return super().flag(name)

  def integer(
    self,
    name: str,
    least: int = fields_lib.LEAST_INTEGER,
    most: int = fields_lib.MOST_INTEGER,
  ) -> int | None:
    self._note(name, type='integer', minimum=least, maximum=most)
    return super().integer(name, least, most)

  def number(self, name: str, least: float, most: float) -> float | None:
    self._note(name, type='number', minimum=least, maximum=most)
    return super().number(name, least, most)

  def text(self, name: str) -> str | None:
    if name == 'chat_template':
      self._note(name, enum=sorted(templates.TEMPLATES))
    else:
      self._note(name, **_RAW.get(name, _TEXT))
    return super().text(name)

  def texts(self, name: str, most: int) -> list[str]:
    many = {'type': 'array', 'items': _TEXT, 'maxItems': most}
    self._note(name, oneOf=[_TEXT, many])
    return super().texts(name, most)

  def ids(self, name: str, most: int) -> list[int]:
    self._note(name, **_IDS, maxItems=most)
    return super().ids(name, most)

  def members(self, name: str) -> fields_lib.Fields:
    inner = _Recorder({}, f'{name}.')
    self._note(name, type='object', properties=inner.properties)
    super().members(name)
    return inner

  def take_harmless(self, names: Collection[str]) -> None:
    for name in names:
      self._note(name, description='accepted, without effect')
    super().take_harmless(names)

  def refuse_unless(self, neutral: Mapping[str, tuple[Any, ...]]) -> None:
    for name, values in neutral.items():
      self._note(name, enum=[*values, None])
    super().refuse_unless(neutral)


@dataclasses.dataclass(frozen=True)
class _Route:
  """What a route does, and samples that make its parser ask for all fields."""

  summary: str
  parse: Callable[[fields_lib.Fields], Any] | None = None
  samples: tuple[Mapping[str, Any], ...] = ()
  required: tuple[str, ...] = ()


def _profile(name: str | None) -> model_profiles.Profile:
  del name
  return model_profiles.Profile()


_PREDICT = _Route(
  'Completions in the form of Vertex AI.',
  lambda body: predict.parse(body, _profile),
  ({'instances': [{'prompt': 'x'}]},),
  ('instances',),
)
_HEALTH = _Route("Whether the cell's admin server answers.")
_ROUTES: Mapping[str, _Route] = {
  '/v1/completions': _Route(
    'Continues a prompt, or several.',
    lambda body: completions.parse(body, _profile),
    ({'prompt': 'x'},),
    ('prompt',),
  ),
  '/v1/chat/completions': _Route(
    'Answers a conversation.',
    lambda body: chat.parse(body, _profile),
    (
      {'messages': _SAMPLE},
      {'messages': _SAMPLE, 'max_completion_tokens': 1},
    ),
    ('messages',),
  ),
  '/v1/embeddings': _Route(
    'Embeds texts.', embeddings.parse, ({'input': 'x'},), ('input',)
  ),
  '/v1/models': _Route('The published models.'),
  '/v1/models/{name}': _Route('One published model.'),
  '/tokenize': _Route(
    'Splits a prompt or a conversation into tokens.',
    lambda body: tokens.parse_tokenize(body, _profile),
    ({'prompt': 'x'}, {'messages': _SAMPLE}),
  ),
  '/detokenize': _Route(
    'Returns the text of tokens.',
    tokens.parse_detokenize,
    ({'tokens': [1]},),
    ('tokens',),
  ),
  '/health/live': _Route('Whether the gateway itself answers.'),
  '/version': _Route('The version of this API.'),
  '/metrics': _Route('Metrics for Prometheus.'),
  '/': _Route('The playground.'),
  '/docs': _Route('This reference.'),
  '/openapi.json': _Route('This reference for programs.'),
  '/static/{name}': _Route('Scripts and styles of the pages.'),
}


def _schema(route: _Route) -> Schema:
  properties: dict[str, Schema] = {}
  for sample in route.samples:
    recorder = _Recorder(sample)
    if route.parse:
      route.parse(recorder)
    properties = {**recorder.properties, **properties}
  return {
    'type': 'object',
    'properties': properties,
    'required': list(route.required),
    'additionalProperties': False,
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
    predictions: The paths of Vertex AI's predictions, likewise.
  """
  known = {
    **_ROUTES,
    **dict.fromkeys(health, _HEALTH),
    **dict.fromkeys(predictions, _PREDICT),
  }
  paths: dict[str, Any] = {}
  for path, method, guarded in routes:
    path = path.replace(':path', '')
    route = known[path]
    operation: dict[str, Any] = {
      'summary': route.summary,
      'responses': {
        '200': {'description': 'The answer.'},
        'default': {'description': "An error in OpenAI's form."},
      },
    }
    if '{name}' in path:
      name = {'name': 'name', 'in': 'path', 'required': True, 'schema': _TEXT}
      operation['parameters'] = [name]
    if route.parse:
      content = {'application/json': {'schema': _schema(route)}}
      operation['requestBody'] = {'required': True, 'content': content}
    if guarded:
      operation['security'] = [{'key': []}]
    paths[path] = {method.lower(): operation}
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
