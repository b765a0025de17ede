"""Runs the admin server of a Sax cell.

    admin_server --sax_root=/tmp/sax-root --sax_cell=/sax/test --port=10000

Set up the cell with admin_config first. SIGTERM and Ctrl-C stop the server
cleanly. All of its state is on disk. After a restart, even on another machine,
it continues with that state, and model servers and clients find it by
themselves. Several admin servers may run for one cell, with the same flags. One
of them leads. The others stand by, and one takes over within 3 s after the
leader ends.
"""

import asyncio
from collections.abc import Sequence
import signal

from absl import flags
from absl import logging

from saxml_ext.admin import cell_admin as server_lib
from saxml_ext.common import cell
from saxml_ext.common import cell_flags
from saxml_ext.common import errors
from saxml_ext.common import flag_rules
from saxml_ext.common import kvstore
from saxml_ext.common import program
from saxml_ext.common.security import access as access_lib
from saxml_ext.common.security import access_flags
from saxml_ext.common.security import tls_flags  # noqa: F401 Registers flags.
from saxml_ext.common.telemetry import telemetry_flags

_SAX_CELL = flags.DEFINE_string(
  'sax_cell',
  None,
  'The cell to serve, for example /sax/test. Default: $SAX_CELL.',
)
_PORT = flags.DEFINE_integer(
  'port',
  None,
  'The TCP port to listen on. 0 picks a free port. Default:'
  ' $SAX_ADMIN_SERVER_PORT, or else 10000.',
  lower_bound=0,
  upper_bound=65535,
)
_HTTP_PORT = flags.DEFINE_integer(
  'http_port',
  8080,
  'The TCP port of the status pages and metrics. 0 picks a free port, and -1'
  ' turns them off. If the port is in use, they are turned off too.',
  lower_bound=-1,
  upper_bound=65535,
)
_HTTP_HOST = flags.DEFINE_string(
  'http_host',
  '127.0.0.1',
  'The address of the interface for --http_port. "" is every interface. Other'
  ' machines can only read the pages, except TLS clients that the ACLs of the'
  ' cell admit.',
)
_EXP_ASSIGNER = flags.DEFINE_bool(
  'sax_admin_exp_assigner',
  False,
  'Assign models to servers by the memory of their chips. See the overrides'
  ' ram, ramN and constraints in saxml_ext/admin/placement/capacity.py.',
)

flag_rules.act_only(
  'with an --http_port of 0 or more', lambda: _HTTP_PORT.value >= 0, 'http_host'
)

_DEFAULT_PORT = 10000
# A server that does not lead after this time logs that it stands by.
_FIRST_SECS = 1.0


async def _serve(
  sax_root: str, sax_cell: str, port: int, access: access_lib.Access
) -> None:
  server = server_lib.AdminServer(
    sax_root,
    sax_cell,
    port,
    None if _HTTP_PORT.value < 0 else _HTTP_PORT.value,
    _EXP_ASSIGNER.value,
    access,
    _HTTP_HOST.value,
    access_flags.host(),
  )
  ended = asyncio.Event()
  loop = asyncio.get_running_loop()
  for number in (signal.SIGTERM, signal.SIGINT):
    loop.add_signal_handler(number, ended.set)
  try:
    await server.start()
    access_flags.warn_if_open(access)
    announcing = asyncio.create_task(_announce(server, sax_cell))
    failing = asyncio.create_task(server.failure())
    waiting = asyncio.create_task(ended.wait())
    await asyncio.wait((failing, waiting), return_when=asyncio.FIRST_COMPLETED)
    announcing.cancel()
    if failing.done():
      failing.result()
    logging.info('stopping')
  finally:
    await server.stop()


async def _announce(server: server_lib.AdminServer, sax_cell: str) -> None:
  try:
    async with asyncio.timeout(_FIRST_SECS):
      await server.leading()
  except TimeoutError:
    print(
      f'Admin server of {sax_cell} is on standby at {server.address}',
      flush=True,
    )
    await server.leading()
  print(
    f'Admin server of {sax_cell} is serving at {server.address}', flush=True
  )


def main(argv: Sequence[str]) -> None:
  """Serves until a signal stops it."""
  del argv
  kvstore.fail_soon()
  with program.exit_on('admin_server', (errors.SaxError, OSError)):
    telemetry_flags.start('sax-admin-server')
    sax_cell = cell.cell_setting(_SAX_CELL.value)
    sax_root = cell_flags.sax_root()
    port = cell.port_setting(
      _PORT.value, cell.ADMIN_PORT_VARIABLE, _DEFAULT_PORT
    )
    access = access_flags.open_access(sax_root, sax_cell)
    asyncio.run(_serve(sax_root, sax_cell, port, access))


if __name__ == '__main__':
  program.run(main)
