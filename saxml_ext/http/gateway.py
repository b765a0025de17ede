"""Serves a cell's models to clients of OpenAI's API.

    gateway --sax_root=/tmp/sax-root --sax_cell=/sax/test --port=8000

It holds no model: requests go to the replicas of the model that they name, as
those of other clients of the cell do. The environment variables SAX_ROOT and
SAX_CELL stand in for --sax_root and --sax_cell. SIGTERM and Ctrl-C let requests
in flight come to their ends; several gateways may serve one cell.

On Vertex AI, its variables AIP_HTTP_PORT, AIP_HEALTH_ROUTE and
AIP_PREDICT_ROUTE say where to listen and what for.
"""

# Before any module that imports gRPC.
from saxml_ext.common import grpc_log  # noqa: F401 Registers or sets up.

# isort: split

import asyncio
from collections.abc import Sequence
import os
import signal

from absl import flags
from absl import logging

from saxml_ext.client import sax_aio
from saxml_ext.common import cell as cell_files
from saxml_ext.common import environment
from saxml_ext.common import errors
from saxml_ext.common import ids
from saxml_ext.common import net
from saxml_ext.common import program
from saxml_ext.common.security import https
from saxml_ext.common.security import tls_flags  # noqa: F401 Registers flags.
from saxml_ext.common.telemetry import telemetry_flags
from saxml_ext.common.telemetry import web
from saxml_ext.http import gateway_flags
from saxml_ext.http.web import gateway_app as app_lib

_SAX_ROOT = flags.DEFINE_string(
  'sax_root',
  None,
  "Directory with the cells' configs and locations. Default: $SAX_ROOT.",
)
_SAX_CELL = flags.DEFINE_string(
  'sax_cell',
  None,
  'The cell to serve, for example /sax/test. Default: $SAX_CELL.',
)
_PORT = flags.DEFINE_integer(
  'port',
  None,
  'TCP port to listen on; 0 picks a free one. Default: $AIP_HTTP_PORT, else'
  ' 8000.',
  lower_bound=0,
  upper_bound=65535,
)
_HOST = flags.DEFINE_string(
  'host',
  None,
  'Address of the interface to listen on; empty for all. Default: 127.0.0.1,'
  ' and all where $AIP_HTTP_PORT is set.',
)
_DRAIN_SECS = flags.DEFINE_float(
  'drain_secs',
  60.0,
  'Seconds that SIGTERM gives requests in flight.',
  lower_bound=0,
)

_AIP_PORT = 'AIP_HTTP_PORT'
_DEFAULT_PORT = 8000
# Longer than most proxies keep connections: theirs is to end first.
_KEEP_ALIVE_SECS = 75.0


async def _serve(cell: str, host: str, port: int) -> None:
  ended = asyncio.Event()
  loop = asyncio.get_running_loop()
  for number in (signal.SIGTERM, signal.SIGINT):
    loop.add_signal_handler(number, ended.set)
  models = gateway_flags.catalogue(cell)
  server = web.WebServer(
    app_lib.build(models, gateway_flags.options(models, host)),
    https.server_context(),
    grace_secs=_DRAIN_SECS.value,
    keep_alive_secs=_KEEP_ALIVE_SECS,
    most_per_client=gateway_flags.max_connections_per_client(),
  )
  await server.start(port, host)
  address = net.join_host_port(host or '0.0.0.0', server.port)
  scheme = 'https' if https.is_set() else 'http'
  print(f'Gateway of {cell} is serving at {scheme}://{address}', flush=True)
  await ended.wait()
  logging.info('stopping')
  await server.stop()


def main(argv: Sequence[str]) -> None:
  """Serves until told to stop."""
  del argv
  with program.exit_on('gateway', (errors.SaxError, OSError)):
    telemetry_flags.start('sax-gateway')
    cell = environment.text(_SAX_CELL.value, environment.CELL).rstrip('/')
    if not cell:
      raise errors.InvalidArgument(
        f'give --sax_cell, for example /sax/test, or set {environment.CELL}'
      )
    ids.parse_cell_id(cell)
    sax_aio.SetRoot(cell_files.sax_root(_SAX_ROOT.value))
    host = _HOST.value
    if host is None:
      host = '' if os.environ.get(_AIP_PORT) else '127.0.0.1'
    port = environment.port(_PORT.value, _AIP_PORT, _DEFAULT_PORT)
    asyncio.run(_serve(cell, host, port))


if __name__ == '__main__':
  program.run(main)
