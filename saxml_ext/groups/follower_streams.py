"""gRPC between the leader of a group and its followers.

Neither end is told by the program that the other one lives: gRPC pings, from
threads of its own that need no turn of the interpreter, so that a process
which compiles or reads for seconds is not taken for a lost one, while one that
is stopped or cut off is.
"""

import grpc

from saxml_ext.common import grpc_util

SERVICE = 'sax.group.Group'
METHOD = 'Follow'
# Metadata of the call that say who calls.
EPOCH = 'sax-group-epoch'
PROCESS = 'sax-group-process'
HOST = 'sax-group-host'

# A score of a long text is the largest of the messages, far below this.
_MAX_MESSAGE_BYTES = 2**30
# Of the time without a sign of life, the part after which one is asked for;
# the rest is the answer's.
_ASK = 0.2


def _options(silence_secs: float) -> tuple[tuple[str, int], ...]:
  ask = round(1e3 * _ASK * silence_secs)
  answer = round(1e3 * silence_secs) - ask
  return (
    ('grpc.max_receive_message_length', _MAX_MESSAGE_BYTES),
    ('grpc.max_send_message_length', _MAX_MESSAGE_BYTES),
    ('grpc.keepalive_time_ms', ask),
    ('grpc.keepalive_timeout_ms', answer),
    # The limit that counts since gRPC 1.60 where the other end's kernel still
    # acknowledges packets, as it does for a stopped process. By default it is
    # a minute.
    ('grpc.http2.ping_timeout_ms', answer),
    ('grpc.http2.max_pings_without_data', 0),
  )


def server_options(silence_secs: float) -> tuple[tuple[str, int], ...]:
  """Options of the leader's server."""
  options = {
    **dict(grpc_util.SERVER_OPTIONS),
    **dict(_options(silence_secs)),
    # Followers ping as often as the leader.
    'grpc.http2.max_ping_strikes': 0,
    'grpc.http2.min_ping_interval_without_data_ms': 1,
  }
  return tuple(options.items())


def channel(address: str, silence_secs: float) -> grpc.Channel:
  """A follower's channel to the leader at "host:port"."""
  return grpc_util.channel(address, _options(silence_secs))
