"""Defines the address of the gateway that `serve` starts and `ask` uses."""

import dataclasses
import http.client

from saxml_ext.common import net

DEFAULT_PORT = 8000
LOOPBACK = '127.0.0.1'


@dataclasses.dataclass(frozen=True)
class Endpoint:
  """The address of the gateway.

  Attributes:
    host: The address of the interface.
    port: The TCP port.
  """

  host: str
  port: int

  @property
  def address(self) -> str:
    """The "host:port" for clients on this machine."""
    host = self.host
    if host in ('', '0.0.0.0', '::'):
      host = LOOPBACK
    return net.join_host_port(host, self.port)

  @property
  def url(self) -> str:
    """The URL for clients on this machine, without a path."""
    return f'http://{self.address}'

  def answers(self) -> bool:
    """Returns True if a gateway listens at the address."""
    connection = http.client.HTTPConnection(self.address, timeout=10)
    try:
      connection.request('GET', '/health/live')
      return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
      return False
    finally:
      connection.close()
