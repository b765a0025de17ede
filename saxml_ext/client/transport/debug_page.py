"""A page that shows what this process's client is doing."""

import threading

from saxml_ext.client.transport import address_watcher
from saxml_ext.client.transport import blocking
from saxml_ext.common import errors


def text() -> str:
  """What the blocking client knows, in plain text."""
  lines = ['Models watched (by clients of every kind):']
  for watcher in address_watcher.all_watchers():
    lines.append(f'  {watcher}')
  lines.append('Connections (of the blocking client):')
  for connection in blocking.TRANSPORT.connections.all():
    lines.append(
      f'  {connection.address}: {connection.outstanding} outstanding'
    )
  lines.append('Threads:')
  lines.extend(sorted(f'  {thread.name}' for thread in threading.enumerate()))
  return '\n'.join(lines) + '\n'


def start(port: int) -> None:
  """Serves the page on http://localhost:<port>/ until the process ends.

  It shows the models that this process watches, its connections and threads.

  Raises:
    FailedPrecondition: the port is taken.
  """
  # Imported late: few need it, and it takes long to import.
  import http.server

  class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
      body = text().encode()
      self.send_response(200)
      self.send_header('Content-Type', 'text/plain; charset=utf-8')
      self.send_header('Content-Length', str(len(body)))
      self.end_headers()
      self.wfile.write(body)

    def log_message(self, format: str, *args) -> None:
      del format, args  # Not on the stderr of somebody else's program.

  try:
    server = http.server.ThreadingHTTPServer(('127.0.0.1', port), Handler)
  except OSError as e:
    raise errors.FailedPrecondition(
      f'port {port} cannot be listened on ({e.strerror}): give another one'
    ) from e
  threading.Thread(
    target=server.serve_forever, name='debug page', daemon=True
  ).start()
