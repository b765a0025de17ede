"""Flags of the gateway on how it takes requests."""

from collections.abc import Sequence
import os
from typing import Any

from absl import flags
from absl import logging

from saxml_ext.common import errors
from saxml_ext.common import net
from saxml_ext.common import user_path
from saxml_ext.common.security import api_keys
from saxml_ext.http.backend import catalogue as catalogue_lib
from saxml_ext.http.protocol import model_profiles as profiles_lib
from saxml_ext.http.protocol import templates
from saxml_ext.http.web import gateway_options as options_lib

_DEFAULTS = options_lib.Options()

_DEFAULT_MODEL = flags.DEFINE_string(
  'default_model',
  '',
  'Model for requests that name none. Default: the only one of the cell, if'
  ' it has one.',
)
_SERVED_MODEL_NAME = flags.DEFINE_list(
  'served_model_name',
  [],
  'Public names of models, shown by /v1/models and accepted in requests:'
  ' NAME=MODEL, or NAME alone for --default_model. A model may have several.'
  " Default: the cell's own names.",
)
_CHAT_TEMPLATE = flags.DEFINE_list(
  'chat_template',
  [],
  'How conversations become prompts: TEMPLATE for all models, MODEL=TEMPLATE'
  f' for one. A template is one of {templates.known()}, or the path of a Jinja'
  ' file, of a tokenizer_config.json or of a directory with either. Default:'
  f' {templates.DEFAULT}.',
)
_GENERATION_CONFIG = flags.DEFINE_list(
  'generation_config',
  [],
  'Defaults of temperature, top_p, top_k and max_tokens: PATH of a'
  ' generation_config.json for all models, MODEL=PATH for one. Default: the'
  " model's own.",
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
_ALLOWED_HOSTS = flags.DEFINE_list(
  'allowed_hosts',
  [],
  'Host names that requests may be for, without a port. Default: localhost and'
  " loopback's addresses where --host is one of them, else every name.",
)
_MAX_CONNECTIONS_PER_CLIENT = flags.DEFINE_integer(
  'max_connections_per_client',
  512,
  'Connections that one client address may have; further ones are refused with'
  ' 429. Raise it if all clients come through one proxy.',
  lower_bound=1,
)


def max_connections_per_client() -> int:
  """Returns the value of the flag."""
  return _MAX_CONNECTIONS_PER_CLIENT.value


def catalogue(cell: str) -> catalogue_lib.Catalogue:
  """Returns the catalogue of a cell with the names that the flags give.

  Raises:
    InvalidArgument: A flag is malformed.
  """
  aliases = {}
  for item in _SERVED_MODEL_NAME.value:
    name, _, model = item.partition('=')
    model = model or _DEFAULT_MODEL.value
    if not name or not model:
      raise errors.InvalidArgument(
        f'--served_model_name={item} names no model. Give NAME=MODEL, or set'
        ' --default_model.'
      )
    aliases[name] = model
  return catalogue_lib.Catalogue(cell, _DEFAULT_MODEL.value, aliases)


def options(
  catalogue: catalogue_lib.Catalogue, host: str
) -> options_lib.Options:
  """Returns what the flags say.

  Args:
    catalogue: The models that flags name.
    host: The address of the interface that the gateway listens on.

  Raises:
    InvalidArgument: one is malformed.
  """
  profile, profiles = _profiles(catalogue)
  path = user_path.resolve(_API_KEYS_FILE.value)
  return options_lib.Options(
    name_of=api_keys.Keys(path).name if path else None,
    max_in_flight=_MAX_IN_FLIGHT.value,
    max_body_bytes=_MAX_BODY_BYTES.value,
    request_timeout=_REQUEST_TIMEOUT.value,
    queue_secs=_QUEUE_SECS.value,
    profile=profile,
    profiles=profiles,
    allowed_origins=_ALLOWED_ORIGINS.value,
    local=host == 'localhost' or net.is_loopback(host),
    allowed_hosts=[name.lower() for name in _ALLOWED_HOSTS.value],
    health_routes=_routes(_DEFAULTS.health_routes, 'AIP_HEALTH_ROUTE'),
    predict_routes=_routes(_DEFAULTS.predict_routes, 'AIP_PREDICT_ROUTE'),
  )


def _profiles(
  catalogue: catalogue_lib.Catalogue,
) -> tuple[profiles_lib.Profile, dict[str, profiles_lib.Profile]]:
  """Returns the profile of all models, and those of single ones by id."""
  chosen: dict[str, dict[str, Any]] = {'': {}}
  for flag, field, read in (
    (_CHAT_TEMPLATE, 'template', profiles_lib.template),
    (_GENERATION_CONFIG, 'defaults', _generation_config),
  ):
    for item in flag.value:
      model, _, value = item.rpartition('=')
      model_id = catalogue.full_id(model) if model else ''
      try:
        found = read(value)
      except errors.InvalidArgument as e:
        raise errors.InvalidArgument(
          f'--{flag.name}={item}: {e.message}'
        ) from e
      chosen.setdefault(model_id, {})[field] = found
  made = {
    model_id: profiles_lib.Profile(**{**chosen[''], **own})
    for model_id, own in chosen.items()
  }
  return made.pop(''), made


def _generation_config(path: str) -> dict[str, Any]:
  defaults, ignored = profiles_lib.generation_config(path)
  if ignored:
    logging.warning(
      '%s sets %s, which this server cannot apply. Answers differ from those'
      ' of a server that does.',
      path,
      ', '.join(ignored),
    )
  return defaults


def _routes(paths: Sequence[str], variable: str) -> list[str]:
  """Paths, and another one that Vertex AI asks for."""
  other = os.environ.get(variable, '')
  if other and not other.startswith('/'):
    raise errors.InvalidArgument(
      f'{variable}={other} is no path: it has to begin with /'
    )
  return list(dict.fromkeys([*paths, other] if other else paths))
