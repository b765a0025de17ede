"""Flags of the gateway on how it takes requests."""

from collections.abc import Sequence
import os

from absl import flags

from saxml_ext.common import errors
from saxml_ext.common import user_path
from saxml_ext.common.security import api_keys
from saxml_ext.http.backend import catalogue as catalogue_lib
from saxml_ext.http.protocol import templates
from saxml_ext.http.web import options as options_lib

_DEFAULTS = options_lib.Options()

_DEFAULT_MODEL = flags.DEFINE_string(
  'default_model',
  '',
  'Model for requests that name none. Default: the only one of the cell, if'
  ' it has one.',
)
_CHAT_TEMPLATE = flags.DEFINE_list(
  'chat_template',
  [],
  'How conversations become prompts: NAME for all models, MODEL=NAME for one.'
  f' Names: {templates.known()}. Default: {templates.DEFAULT}.',
)
_API_KEYS_FILE = flags.DEFINE_string(
  'api_keys_file',
  '',
  'File of API keys, one of which a request has to bring; changes of it count'
  ' within seconds. //saxml_ext/common/security:api_key makes keys. Default:'
  ' everybody may ask.',
)
_MAX_BODY_BYTES = flags.DEFINE_integer(
  'max_body_bytes',
  _DEFAULTS.max_body_bytes,
  "Bytes that a request's body may have; larger ones are refused with 413.",
  lower_bound=1,
)
_MAX_IN_FLIGHT = flags.DEFINE_integer(
  'max_in_flight',
  _DEFAULTS.max_in_flight,
  'Requests at a time; further ones are refused with 429.',
  lower_bound=1,
)
_REQUEST_TIMEOUT = flags.DEFINE_float(
  'request_timeout',
  _DEFAULTS.request_timeout,
  'Seconds that a request may take; requests can ask for less.',
  lower_bound=0.001,
)
_QUEUE_SECS = flags.DEFINE_float(
  'queue_secs',
  _DEFAULTS.queue_secs,
  "Seconds that a request waits here where the model's queue is full, before it"
  ' is refused with 429.',
  lower_bound=0,
)
_ALLOWED_ORIGINS = flags.DEFINE_list(
  'allowed_origins',
  [],
  'Web sites whose pages may ask this gateway, such as https://a.example; * for'
  ' all. Default: none.',
)


def default_model() -> str:
  """--default_model."""
  return _DEFAULT_MODEL.value


def options(catalogue: catalogue_lib.Catalogue) -> options_lib.Options:
  """What the flags say.

  Raises:
    InvalidArgument: one is malformed.
  """
  template, of_models = _chat_templates(catalogue)
  path = user_path.resolve(_API_KEYS_FILE.value)
  return options_lib.Options(
    name_of=api_keys.Keys(path).name if path else None,
    max_in_flight=_MAX_IN_FLIGHT.value,
    max_body_bytes=_MAX_BODY_BYTES.value,
    request_timeout=_REQUEST_TIMEOUT.value,
    queue_secs=_QUEUE_SECS.value,
    chat_template=template,
    chat_templates=of_models,
    allowed_origins=_ALLOWED_ORIGINS.value,
    health_routes=_routes(_DEFAULTS.health_routes, 'AIP_HEALTH_ROUTE'),
    predict_routes=_routes(_DEFAULTS.predict_routes, 'AIP_PREDICT_ROUTE'),
  )


def _chat_templates(
  catalogue: catalogue_lib.Catalogue,
) -> tuple[str, dict[str, str]]:
  template, of_models = templates.DEFAULT, {}
  for item in _CHAT_TEMPLATE.value:
    model, _, name = item.rpartition('=')
    if name not in templates.TEMPLATES:
      raise errors.InvalidArgument(
        f'--chat_template={item}: {name!r} is none of {templates.known()}'
      )
    if model:
      of_models[catalogue.full_id(model)] = name
    else:
      template = name
  return template, of_models


def _routes(paths: Sequence[str], variable: str) -> list[str]:
  """Paths, and another one that Vertex AI asks for."""
  other = os.environ.get(variable, '')
  if other and not other.startswith('/'):
    raise errors.InvalidArgument(
      f'{variable}={other} is no path: it has to begin with /'
    )
  return list(dict.fromkeys([*paths, other] if other else paths))
