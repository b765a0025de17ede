"""Configures gRPC between the leader of a group and its followers.

gRPC pings the other end from its own threads, which do not need Python's global
interpreter lock. A process that compiles or reads for seconds still answers and
is not reported as lost. A process that is stopped or disconnected is reported.
"""

import grpc

from saxml_ext.common import grpc_util

SERVICE = 'sax.group.Group'
METHOD = 'Follow'
# The keys of the call's metadata that identify the caller.
EPOCH = 'sax-group-epoch'
PROCESS = 'sax-group-process'
HOST = 'sax-group-host'

# The largest message is the score of a long text, which is far below this size.
_MAX_MESSAGE_BYTES = 2**30
# The fraction of the silence timeout after which gRPC sends a ping. The rest is
# the timeout of the answer.
_ASK = 0.2


def _options(silence_secs: float) -> tuple[tuple[str, int], ...]:
  ask = round(1e3 * _ASK * silence_secs)
  answer = round(1e3 * silence_secs) - ask
  return (
    ('grpc.max_receive_message_length', _MAX_MESSAGE_BYTES),
    ('grpc.max_send_message_length', _MAX_MESSAGE_BYTES),
    ('grpc.keepalive_time_ms', ask),
    ('grpc.keepalive_timeout_ms', answer),
    # A stopped process's kernel still acknowledges packets. Since gRPC 1.60,
    # only this timeout detects such a process. Its default is a minute.
    ('grpc.http2.ping_timeout_ms', answer),
    ('grpc.http2.max_pings_without_data', 0),
  )


def server_options(silence_secs: float) -> tuple[tuple[str, int], ...]:
  """Returns the gRPC options of the leader's server."""
  options = {
    **dict(grpc_util.SERVER_OPTIONS),
    **dict(_options(silence_secs)),
    # By default, gRPC refuses pings as frequent as those of the followers.
    'grpc.http2.max_ping_strikes': 0,
    'grpc.http2.min_ping_interval_without_data_ms': 1,
  }
  return tuple(options.items())


def channel(address: str, silence_secs: float) -> grpc.Channel:
  """Returns a follower's channel to the leader at "host:port"."""
  return grpc_util.channel(address, _options(silence_secs))
