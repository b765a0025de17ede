"""A Hugging Face hub with one model on the loopback interface."""

import collections
from collections.abc import Iterator, Mapping
import contextlib
import hashlib
import http.server
import json
import threading
import urllib.parse

REVISION = '0123456789abcdef0123456789abcdef01234567'


class _Server(http.server.ThreadingHTTPServer):
  model_id: str
  files: Mapping[str, bytes]
  downloads: collections.Counter[str]


class _Handler(http.server.BaseHTTPRequestHandler):
  protocol_version = 'HTTP/1.1'
  server: _Server

  def do_GET(self):  # pylint: disable=invalid-name
    self._answer()

  def do_HEAD(self):  # pylint: disable=invalid-name
    self._answer()

  def _answer(self) -> None:
    path = urllib.parse.urlparse(self.path).path
    model_id, files = self.server.model_id, self.server.files
    api = f'/api/models/{model_id}'
    resolve = f'/{model_id}/resolve/{REVISION}/'
    if path.startswith(f'{api}/tree/'):
      self._send_json([_entry(name, data) for name, data in files.items()])
    elif path == api or path.startswith(f'{api}/revision/'):
      siblings = [{'rfilename': name} for name in files]
      self._send_json({'id': model_id, 'sha': REVISION, 'siblings': siblings})
    elif path.removeprefix(resolve) in files and path.startswith(resolve):
      name = path.removeprefix(resolve)
      if self.command == 'GET':
        self.server.downloads[name] += 1
      etag = f'"{hashlib.sha1(files[name]).hexdigest()}"'
      self._send(200, files[name], ETag=etag)
    else:
      self._send(404, b'', **{'X-Error-Code': 'RepoNotFound'})

  def _send_json(self, document) -> None:
    self._send(200, json.dumps(document).encode('ascii'))

  def _send(self, status: int, data: bytes, **headers: str) -> None:
    self.send_response(status)
    headers |= {'Content-Length': str(len(data)), 'X-Repo-Commit': REVISION}
    for name, value in headers.items():
      self.send_header(name, value)
    self.end_headers()
    if self.command == 'GET':
      self.wfile.write(data)

  def log_message(self, *args) -> None:
    """Keeps requests out of the output of tests."""


def _entry(name: str, data: bytes) -> dict:
  oid = hashlib.sha1(data).hexdigest()
  return {'type': 'file', 'path': name, 'size': len(data), 'oid': oid}


@contextlib.contextmanager
def running(
  model_id: str, files: Mapping[str, bytes]
) -> Iterator[tuple[str, collections.Counter[str]]]:
  """Serves a model.

  Args:
    model_id: The model's id, such as "org/model".
    files: The contents of its files by name.

  Yields:
    The hub's URL, and the number of downloads of each file so far.
  """
  with _Server(('127.0.0.1', 0), _Handler) as server:
    server.model_id, server.files = model_id, files
    server.downloads = collections.Counter()
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
      yield f'http://127.0.0.1:{server.server_port}', server.downloads
    finally:
      server.shutdown()
      thread.join()
