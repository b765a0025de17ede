"""The Python client of a Sax cell.

    from saxml_ext.client import sax

    sax.Publish('/sax/test/gptj', 'saxml_ext.params.gptj.TinyFP32', path, 1)
    sax.WaitForReady('/sax/test/gptj', 1)
    for text, score in sax.Model('/sax/test/gptj').LM().Generate('Hello'):
      print(score, text)

The root directory of all cells is set by `SetRoot` or by the environment
variable SAX_ROOT. If SAX_CELL is set, it names the cell of models that are
given by a short name. Functions and methods are thread-safe and raise
`SaxError`. sax_aio.py has the same functions for asyncio. Functions not
documented here are in transport/admin_calls.py. The methods of models are in
models/.
"""

# This import must come before any module that imports gRPC.
from saxml_ext.common import grpc_log  # noqa: F401 Registers or sets up.

# isort: split

import threading
from typing import Any, TYPE_CHECKING

from saxml_ext.client.models import custom
from saxml_ext.client.models import lm
from saxml_ext.client.transport import address_watcher
from saxml_ext.client.transport import admin_calls
from saxml_ext.client.transport import admin_client
from saxml_ext.client.transport import blocking
from saxml_ext.client.transport import data_client
from saxml_ext.client.transport import options as options_lib
from saxml_ext.common import errors

if TYPE_CHECKING:
  from saxml_ext.client.models import media

SaxError = errors.SaxError
Options = options_lib.Options
ModelOptions = options_lib.ModelOptions
AdminOptions = options_lib.AdminOptions
ModelDetail = admin_client.ModelDetail
Replica = admin_client.Replica
ModelServerTypeStat = admin_calls.ModelServerTypeStat
SetRoot = admin_client.set_root

LanguageModel = lm.BlockingLM
CustomModel = custom.BlockingCM
ModelServer = custom.BlockingModelet
# Maps the names of these classes to those in models/media.py. Few programs need
# them, so they are imported on first use.
_MEDIA = {
  'AudioModel': 'BlockingAM',
  'MultimodalModel': 'BlockingMM',
  'VisionModel': 'BlockingVM',
}


class Model:
  """A published model."""

  def __init__(self, model_id: str, options: Options | None = None):
    """Creates the model without a check: an invalid id fails on first use."""
    self._client = data_client.DataClient(
      model_id, options or Options(), blocking.transport
    )

  def LM(self) -> LanguageModel:
    """Returns the model's language methods."""
    return LanguageModel(self._client)

  def VM(self) -> 'media.BlockingVM':
    """Returns the model's vision methods."""
    return __getattr__('VisionModel')(self._client)

  def AM(self) -> 'media.BlockingAM':
    """Returns the model's audio methods."""
    return __getattr__('AudioModel')(self._client)

  def MM(self) -> 'media.BlockingMM':
    """Returns the model's multimodal methods."""
    return __getattr__('MultimodalModel')(self._client)

  def CM(self) -> CustomModel:
    """Returns the model's custom methods."""
    return CustomModel(self._client)

  def Modelet(self) -> ModelServer:
    """Returns the methods that make a server save or export the model."""
    return ModelServer(self._client)


def __getattr__(name: str) -> Any:
  """Returns a class that is imported on first use."""
  if name not in _MEDIA:
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
  from saxml_ext.client.models import media

  return getattr(media, _MEDIA[name])


def _debug_text() -> str:
  """Returns the state of this process's client as plain text."""
  lines = ['Watched models (of all clients):']
  lines += [f'  {watcher}' for watcher in address_watcher.all_watchers()]
  lines.append('Connections (of the blocking client):')
  lines += [
    f'  {connection.address}: {connection.outstanding} outstanding'
    for connection in blocking.TRANSPORT.connections.all()
  ]
  lines.append('Threads:')
  lines += sorted(f'  {thread.name}' for thread in threading.enumerate())
  return '\n'.join(lines) + '\n'


def StartDebugPort(port: int) -> None:
  """Serves a page on http://localhost:<port>/ until the process ends.

  The page shows the models that this process watches, its connections and its
  threads.

  Raises:
    FailedPrecondition: The port is in use.
  """
  # Few programs need this module, and its import is slow.
  import http.server

  class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
      body = _debug_text().encode()
      self.send_response(200)
      self.send_header('Content-Type', 'text/plain; charset=utf-8')
      self.send_header('Content-Length', str(len(body)))
      self.end_headers()
      self.wfile.write(body)

    def log_message(self, format: str, *args) -> None:
      del format, args  # Logs must not go to the stderr of the user's program.

  try:
    server = http.server.ThreadingHTTPServer(('127.0.0.1', port), Handler)
  except OSError as e:
    raise errors.FailedPrecondition(
      f'port {port} is not available ({e.strerror}). Pass another one'
    ) from e
  threading.Thread(
    target=server.serve_forever, name='debug page', daemon=True
  ).start()


_calls = admin_calls.AdminCalls(blocking.transport)

Publish = blocking.wrap(_calls.Publish)
Unpublish = blocking.wrap(_calls.Unpublish)
Update = blocking.wrap(_calls.Update)
UpdateReplicas = blocking.wrap(_calls.UpdateReplicas)
UpdateCheckpoint = blocking.wrap(_calls.UpdateCheckpoint)
List = blocking.wrap(_calls.List)
ListDetail = blocking.wrap(_calls.ListDetail)
ListAll = blocking.wrap(_calls.ListAll)
ListAllDetails = blocking.wrap(_calls.ListAllDetails)
Stats = blocking.wrap(_calls.Stats)
WatchAddresses = blocking.wrap_stream(_calls.WatchAddresses)
WaitForReady = blocking.wrap(_calls.WaitForReady)
GetACL = blocking.wrap(_calls.GetACL)
SetACL = blocking.wrap(_calls.SetACL)
