"""Writes HTTP/2 frames by hand, for messages that no client library sends."""

import socket
import struct
import time

PREFACE = b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'
_DATA, _HEADERS, _SETTINGS = 0, 1, 4
_END_HEADERS = 4
_SECS = 20.0


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
  """Returns a frame (RFC 9113, section 4.1)."""
  size = struct.pack('>I', len(payload))[1:]
  return size + struct.pack('>BBI', kind, flags, stream) + payload


def settings() -> bytes:
  """Returns an empty SETTINGS frame, with which each side begins."""
  return frame(_SETTINGS, 0, 0, b'')


def headers(path: str, stream: int = 1) -> bytes:
  """Returns the HEADERS frame of a gRPC call."""
  fields = {
    ':method': 'POST',
    ':scheme': 'http',
    ':path': path,
    ':authority': 'localhost',
    'te': 'trailers',
    'content-type': 'application/grpc',
  }
  block = b''.join(_literal(k) + _text(v) for k, v in fields.items())
  return frame(_HEADERS, _END_HEADERS, stream, block)


def _literal(name: str) -> bytes:
  # This is a literal field with a new name, which is never indexed (RFC 7541,
  # 6.2.2).
  return b'\0' + _text(name)


def _text(value: str) -> bytes:
  data = value.encode('ascii')
  return bytes([len(data)]) + data


def announce(path: str, size: int) -> bytes:
  """Returns the beginning of a call whose message announces `size` bytes.

  The first kilobytes of the message follow, and nothing after them.
  """
  data = struct.pack('>BI', 0, size) + b'\x12' * 8192
  return PREFACE + settings() + headers(path) + frame(_DATA, 0, 1, data)


def secs_until_refused(address: str, path: str, size: int) -> float:
  """Measures the time until a server rejects a message of an announced size.

  Raises:
    TimeoutError: The server did not reject it in time.
    ConnectionError: The server closed the connection without an answer.
  """
  host, _, port = address.rpartition(':')
  with socket.create_connection((host.strip('[]'), int(port)), _SECS) as peer:
    begin = time.monotonic()
    peer.sendall(announce(path, size))
    stream = peer.makefile('rb')
    while True:
      head = stream.read(9)
      if len(head) < 9:
        raise ConnectionError(f'{address} hung up')
      length = int.from_bytes(head[:3], 'big')
      kind, number = head[3], int.from_bytes(head[5:9], 'big')
      stream.read(length)
      if number == 1 and kind == _HEADERS:
        return time.monotonic() - begin
