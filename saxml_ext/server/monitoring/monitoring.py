"""The HTTP port of a model server: its flags, start and stop."""

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from absl import flags
from absl import logging

from saxml_ext.common import errors
from saxml_ext.common import flag_rules
from saxml_ext.common import user_path
from saxml_ext.common.security import tls
from saxml_ext.server.lifecycle import lifecycle
from saxml_ext.server.loading import servable

if TYPE_CHECKING:
  from saxml_ext.common.telemetry import web

_HTTP_PORT = flags.DEFINE_integer(
  'http_port',
  -1,
  'The TCP port of /metrics, /healthz, /readyz and /profile; 0 picks a free'
  ' port, and -1 disables them.',
  lower_bound=-1,
  upper_bound=65535,
)
_HTTP_HOST = flags.DEFINE_string(
  'http_host', '', 'The address of --http_port; "" stands for all interfaces.'
)
_PROFILE_DIR = flags.DEFINE_string(
  'profile_dir',
  '',
  'The directory for JAX profiles, which POST /profile?seconds=3 records.'
  ' Without it, profiles are disabled.',
)
flag_rules.act_only(
  'with an --http_port of 0 or more',
  lambda: _HTTP_PORT.value >= 0,
  'http_host profile_dir',
)


class Monitoring:
  """Serves the HTTP port, if the flags enable it."""

  _server: 'web.WebServer | None' = None

  def __init__(
    self,
    models: lifecycle.Models[servable.Servable],
    serves: Callable[[], bool],
    expected: Collection[str],
  ):
    """Creates the server; `start` begins to listen.

    Args:
      models: The models of the server.
      serves: A function that returns True if the server accepts calls.
      expected: The keys of models without which the server is not ready.
    """
    if _HTTP_PORT.value >= 0:
      # Servers without the port start faster without these imports.
      from saxml_ext.common.telemetry import web
      from saxml_ext.server.monitoring import monitoring_app

      directory = _PROFILE_DIR.value and user_path.resolve(_PROFILE_DIR.value)
      pages = monitoring_app.Pages(models, serves, expected, directory)
      self._server = web.WebServer(pages.app(), web.server_context())

  async def start(self) -> None:
    """Listens on the port; raises FailedPrecondition if it is in use."""
    if self._server is None:
      return
    try:
      await self._server.start(_HTTP_PORT.value, _HTTP_HOST.value)
    except OSError as e:
      raise errors.FailedPrecondition(
        f'--http_port={_HTTP_PORT.value} --http_host={_HTTP_HOST.value} cannot'
        f' be listened on: {e}. Use another one.'
      ) from e
    scheme = 'https' if tls.current().cert_file else 'http'
    port = self._server.port
    logging.info('metrics at %s://localhost:%d/metrics', scheme, port)

  async def stop(self) -> None:
    """Stops the HTTP server, if it runs."""
    if self._server is not None:
      await self._server.stop()
