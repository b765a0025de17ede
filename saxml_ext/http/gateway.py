"""Serves a cell's models to clients of OpenAI's API.

    gateway --sax_root=/tmp/sax-root --sax_cell=/sax/test --port=8000

The gateway holds no model. It sends each request to a replica of the model that
the request names. The environment variables SAX_ROOT and SAX_CELL replace
--sax_root and --sax_cell. After SIGTERM or Ctrl-C, requests in flight are
finished. Several gateways may serve one cell.

On Vertex AI, the variables AIP_HTTP_PORT, AIP_HEALTH_ROUTE and
AIP_PREDICT_ROUTE set the port and the routes.
"""

# This import must come before any module that imports gRPC.
from saxml_ext.common import grpc_log  # noqa: F401 Registers or sets up.

# isort: split

import asyncio
from collections.abc import Sequence
import dataclasses
import gc
import os
import signal
import socket
from typing import Any

from absl import flags
from absl import logging

from saxml_ext.client import sax_aio
from saxml_ext.common import cell as cell_files
from saxml_ext.common import cell_flags
from saxml_ext.common import errors
from saxml_ext.common import ids
from saxml_ext.common import net
from saxml_ext.common import program
from saxml_ext.common import user_path
from saxml_ext.common.security import api_keys
from saxml_ext.common.security import tls_flags  # noqa: F401 Registers flags.
from saxml_ext.common.telemetry import sockets
from saxml_ext.common.telemetry import telemetry_flags
from saxml_ext.common.telemetry import web
from saxml_ext.http import gateway_flags
from saxml_ext.http.protocol import templates
from saxml_ext.http.web import catalogue as catalogue_lib
from saxml_ext.http.web import gateway_app as app_lib
from saxml_ext.http.web import guard

_SAX_CELL = flags.DEFINE_string(
  'sax_cell',
  None,
  'The cell to serve, for example /sax/test. Default: $SAX_CELL.',
)
_PORT = flags.DEFINE_integer(
  'port',
  None,
  'The TCP port to listen on. 0 picks a free port. Default: $AIP_HTTP_PORT,'
  ' or else 8000.',
  lower_bound=0,
  upper_bound=65535,
)
_HOST = flags.DEFINE_string(
  'host',
  None,
  'The address of the interface to listen on; empty for all. Default:'
  ' 127.0.0.1, or all if $AIP_HTTP_PORT is set.',
)
_DRAIN_SECS = flags.DEFINE_float(
  'drain_secs',
  60.0,
  'The time for requests in flight after SIGTERM, in seconds.',
  lower_bound=0,
)

_DEFAULT_MODEL = flags.DEFINE_string(
  'default_model',
  '',
  'The model for requests without one. Default: the only model of the cell.',
)
_SERVED_MODEL_NAME = flags.DEFINE_list(
  'served_model_name',
  [],
  'The public names of models, for /v1/models and requests: NAME=MODEL, or'
  ' NAME alone for --default_model. A model may have several names. Default:'
  " the cell's own names.",
)
_CHAT_TEMPLATE = flags.DEFINE_list(
  'chat_template',
  [],
  'The templates that convert conversations to prompts: TEMPLATE for all'
  ' models, MODEL=TEMPLATE for one. A template is one of'
  f' {templates.known()}, or the path of a Jinja file, of a'
  ' tokenizer_config.json or of a directory with either. Default:'
  f' {templates.DEFAULT}.',
)
_GENERATION_CONFIG = flags.DEFINE_list(
  'generation_config',
  [],
  'The files with defaults of temperature, top_p, top_k and max_tokens: PATH'
  ' of a generation_config.json for all models, MODEL=PATH for one. Default:'
  " the model's own file.",
)
_STATUS_PAGE = flags.DEFINE_string(
  'status_page',
  '',
  "The URL of the cell's status page, for a link in the playground.",
)
_AIP_PORT = 'AIP_HTTP_PORT'
# The number of an open file: the socket that listens, instead of --port.
_LISTEN_FD = 'SAX_HTTP_LISTEN_FD'
_DEFAULT_PORT = 8000
# This is longer than the limit of most proxies, which should close first.
_KEEP_ALIVE_SECS = 75.0
_FOR_HEALTH_CHECKS = 64


def _catalogue(cell: str) -> catalogue_lib.Catalogue:
  """Returns the catalogue of a cell, with the model names from the flags.

  Raises:
    InvalidArgument: A flag is malformed.
  """
  aliases = {}
  for item in _SERVED_MODEL_NAME.value:
    name, _, model = item.partition('=')
    model = model or _DEFAULT_MODEL.value
    if not name or not model:
      raise errors.InvalidArgument(
        f'--served_model_name={item} has no model. Set NAME=MODEL, or set'
        ' --default_model.'
      )
    aliases[name] = model
  return catalogue_lib.Catalogue(cell, _DEFAULT_MODEL.value, aliases)


def _options(catalogue: catalogue_lib.Catalogue, host: str) -> guard.Options:
  """Returns the options that the flags set.

  Args:
    catalogue: The models that the flags name.
    host: The address of the interface that the gateway listens on.

  Raises:
    InvalidArgument: A flag is malformed.
  """
  profile, profiles = _profiles(catalogue)
  page = _STATUS_PAGE.value
  if page and not page.startswith(('http://', 'https://')):
    raise errors.InvalidArgument(
      f'--status_page={page} is not a URL. It must begin with http:// or'
      ' https://'
    )
  path = user_path.resolve(gateway_flags.API_KEYS_FILE.value)
  defaults = guard.Options()
  limits = gateway_flags.limits()
  # Some connections are left for health checks.
  most = sockets.most_connections(limits.max_connections)
  most -= min(_FOR_HEALTH_CHECKS, most // 2)
  limits = dataclasses.replace(
    limits, max_in_flight=min(limits.max_in_flight, most)
  )
  return guard.Options(
    **dataclasses.asdict(limits),
    name_of=api_keys.Keys(path).name if path else None,
    profile=profile,
    profiles=profiles,
    allowed_origins=gateway_flags.ALLOWED_ORIGINS.value,
    local=host == 'localhost' or net.is_loopback(host),
    allowed_hosts=gateway_flags.allowed_hosts(),
    health_routes=_routes(defaults.health_routes, 'AIP_HEALTH_ROUTE'),
    predict_routes=_routes(defaults.predict_routes, 'AIP_PREDICT_ROUTE'),
    status_page=page,
  )


def _profiles(
  catalogue: catalogue_lib.Catalogue,
) -> tuple[templates.Profile, dict[str, templates.Profile]]:
  """Returns the profile of all models, and those of single models by id."""
  chosen: dict[str, dict[str, Any]] = {'': {}}
  for flag, field, read in (
    (_CHAT_TEMPLATE, 'template', templates.find),
    (_GENERATION_CONFIG, 'defaults', _generation_config),
  ):
    for item in flag.value:
      model, _, value = item.rpartition('=')
      model_id = catalogue.full_id(model) if model else ''
      try:
        parsed = read(value)
      except errors.InvalidArgument as e:
        raise errors.InvalidArgument(
          f'--{flag.name}={item}: {e.message}'
        ) from e
      chosen.setdefault(model_id, {})[field] = parsed
  made = {
    model_id: templates.Profile(**{**chosen[''], **own})
    for model_id, own in chosen.items()
  }
  return made.pop(''), made


def _generation_config(path: str) -> dict[str, Any]:
  defaults, ignored = templates.generation_config(path)
  if ignored:
    logging.warning(
      '%s sets %s, which this server cannot apply. Answers differ from those'
      ' of a server that does.',
      path,
      ', '.join(ignored),
    )
  return defaults


def _routes(paths: Sequence[str], variable: str) -> list[str]:
  """Returns the paths, with one more if Vertex AI sets the variable."""
  other = os.environ.get(variable, '')
  if other and not other.startswith('/'):
    raise errors.InvalidArgument(
      f'{variable}={other} is not a path. It must begin with /'
    )
  return list(dict.fromkeys([*paths, other] if other else paths))


async def _serve(cell: str, host: str, port: int) -> None:
  ended = asyncio.Event()
  loop = asyncio.get_running_loop()
  for number in (signal.SIGTERM, signal.SIGINT):
    loop.add_signal_handler(number, ended.set)
  models = _catalogue(cell)
  options = _options(models, host)
  server = web.WebServer(
    app_lib.build(models, options),
    web.server_context(),
    grace_secs=_DRAIN_SECS.value,
    keep_alive_secs=_KEEP_ALIVE_SECS,
    most_per_client=options.max_connections_per_client,
    most=options.max_connections,
  )
  # `serve` opens the port, so that clients can connect while it replaces a
  # gateway.
  inherited = os.environ.get(_LISTEN_FD)
  listener = socket.socket(fileno=int(inherited)) if inherited else None
  await server.start(port, host, listener)
  address = net.join_host_port(host or '0.0.0.0', server.port)
  scheme = 'https' if web.is_https() else 'http'
  # Garbage collection then skips the modules, so it delays requests less.
  gc.freeze()
  print(f'Gateway of {cell} is serving at {scheme}://{address}', flush=True)
  await ended.wait()
  logging.info('stopping')
  await server.stop()


def main(argv: Sequence[str]) -> None:
  """Serves until the process gets a signal to stop."""
  del argv
  with program.exit_on('gateway', (errors.SaxError, OSError)):
    telemetry_flags.start('sax-gateway')
    cell = cell_files.cell_setting(_SAX_CELL.value).rstrip('/')
    ids.parse_cell_id(cell)
    sax_aio.SetRoot(cell_flags.sax_root())
    host = _HOST.value
    if host is None:
      host = '' if os.environ.get(_AIP_PORT) else '127.0.0.1'
    port = cell_files.port_setting(_PORT.value, _AIP_PORT, _DEFAULT_PORT)
    asyncio.run(_serve(cell, host, port))


if __name__ == '__main__':
  program.run(main)
