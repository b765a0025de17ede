"""The HTTP port of a model server: its flags, and its life."""

from collections.abc import AsyncIterator, Callable, Collection
import contextlib

from absl import flags
from absl import logging

from saxml_ext.common import errors
from saxml_ext.common import user_path
from saxml_ext.common.telemetry import web
from saxml_ext.server.monitoring import app
from saxml_ext.server.monitoring import collector
from saxml_ext.server.monitoring import profiles

_HTTP_PORT = flags.DEFINE_integer(
  'http_port',
  -1,
  'TCP port of /metrics, /healthz, /readyz and /profile; 0 picks a free one, -1'
  ' serves none.',
  lower_bound=-1,
  upper_bound=65535,
)
_HTTP_HOST = flags.DEFINE_string(
  'http_host', '', 'Address that --http_port is on; "" is every one.'
)
_PROFILE_DIR = flags.DEFINE_string(
  'profile_dir',
  '',
  'Directory for JAX profiles, which POST /profile?seconds=3 takes; without it'
  ' none can be taken.',
)


@contextlib.asynccontextmanager
async def serving(
  entries: Callable[[], collector.Entries],
  serves: Callable[[], bool],
  expected: Collection[str],
) -> AsyncIterator[None]:
  """Serves the HTTP port, if the flags ask for one, during the body.

  Args:
    entries: returns the models as of now, by key.
    serves: whether calls are taken.
    expected: keys of models without which the server is not ready.

  Raises:
    FailedPrecondition: the port is taken.
  """
  if _HTTP_PORT.value < 0:
    yield
    return
  taken = profiles.Profiles(
    user_path.resolve(_PROFILE_DIR.value) if _PROFILE_DIR.value else ''
  )
  pages = app.Pages(entries, serves, expected, taken)
  server = web.WebServer(pages.app())
  try:
    await server.start(_HTTP_PORT.value, _HTTP_HOST.value)
  except OSError as e:
    raise errors.FailedPrecondition(
      f'--http_port={_HTTP_PORT.value} --http_host={_HTTP_HOST.value} cannot be'
      f' listened on: {e}; give another one'
    ) from e
  logging.info('metrics at http://localhost:%d/metrics', server.port)
  try:
    yield
  finally:
    await server.stop()
