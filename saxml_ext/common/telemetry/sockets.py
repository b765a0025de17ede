"""Opens the sockets of HTTP servers, and counts the files that they may use."""

import resource
import socket

# The maximum number of connections that wait until the server accepts them.
MOST_WAITING = 2048
# The soft limit of open files is raised up to this number. The reserve is for
# other files, and for connections that were accepted but not counted yet.
_MOST_FILES, _RESERVED_FILES = 65536, 256


def most_connections(most: int) -> int:
  """Returns a number of connections that the limit of open files allows.

  The soft limit is first raised, at most to the hard one.

  Args:
    most: The wanted number.
  """
  soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
  unlimited = resource.RLIM_INFINITY
  target = _MOST_FILES if hard == unlimited else min(hard, _MOST_FILES)
  if soft != unlimited and soft < target:
    resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
    soft = target
  files = _MOST_FILES if soft == unlimited else soft
  return min(most, max(files // 4, files - _RESERVED_FILES))


def listen(host: str, port: int) -> socket.socket:
  """Returns a socket that listens for HTTP.

  Args:
    host: The address of the interface. '' is every interface.
    port: The port. 0 picks a free one.

  Raises:
    OSError: The port is in use, or there is no such interface.
  """
  if not host and socket.has_dualstack_ipv6():
    listener = socket.create_server(
      ('', port),
      family=socket.AF_INET6,
      backlog=MOST_WAITING,
      dualstack_ipv6=True,
    )
  else:
    family = socket.AF_INET6 if ':' in host else socket.AF_INET
    listener = socket.create_server(
      (host, port), family=family, backlog=MOST_WAITING
    )
  # asyncio sets TCP_NODELAY only if the protocol is given. Without it, a
  # response in two parts waits 40 ms for the client's delayed acknowledgement.
  return socket.socket(
    listener.family, listener.type, socket.IPPROTO_TCP, fileno=listener.detach()
  )
