"""Defines the limits of a gateway, which its flags set."""

import dataclasses


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
  """The limits of a gateway.

  Attributes:
    max_in_flight: The maximum number of requests at a time; more are rejected.
    max_body_bytes: The maximum size of a request body.
    max_bytes_in_flight: The maximum size of all bodies above 64 KiB of requests
      in flight. One client may have half.
    request_timeout: The time limit of a request, in seconds.
    queue_secs: The time to wait for room in a full queue, in seconds; it is a
      part of the time limit.
    max_connections_per_client: The maximum number of connections per client
      address.
    max_connections: The maximum number of connections. It is lower if the
      process may not have enough files.
    strict_requests: True if requests with unknown members are rejected.
  """

  max_in_flight: int = 1024
  max_body_bytes: int = 4 * 2**20
  max_bytes_in_flight: int = 32 * 2**20
  request_timeout: float = 600.0
  queue_secs: float = 0.0
  max_connections_per_client: int = 512
  max_connections: int = 4096
  strict_requests: bool = False
