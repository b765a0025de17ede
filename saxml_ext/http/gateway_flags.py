"""Defines the gateway's flags that `serve` has too.

`serve` passes the values on to the gateway that it starts. So a message about
one of these flags fits both programs.
"""

import dataclasses

from absl import flags

from saxml_ext.http import limits as limits_lib

_DEFAULTS = limits_lib.Limits()

API_KEYS_FILE = flags.DEFINE_string(
  'api_keys_file',
  '',
  'The file of API keys. Each request must have one of them. Changes of the'
  ' file take effect within seconds. //saxml_ext/common/security:api_key'
  ' makes keys. Default: requests need no key.',
)
flags.DEFINE_integer(
  'max_body_bytes',
  _DEFAULTS.max_body_bytes,
  "The maximum size of a request's body, in bytes. Larger ones get 413.",
  lower_bound=1,
)
flags.DEFINE_integer(
  'max_bytes_in_flight',
  _DEFAULTS.max_bytes_in_flight,
  'The maximum size of all bodies above 64 KiB of requests in flight, in bytes.'
  ' One client may have half. Further ones wait up to 10 s and then get 429.',
  lower_bound=1,
)
flags.DEFINE_integer(
  'max_in_flight',
  _DEFAULTS.max_in_flight,
  'The maximum number of requests in flight. Further ones get 429.',
  lower_bound=1,
)
flags.DEFINE_float(
  'request_timeout',
  _DEFAULTS.request_timeout,
  'The timeout of a request, in seconds. Requests can set a shorter one.',
  lower_bound=0.001,
)
flags.DEFINE_float(
  'queue_secs',
  _DEFAULTS.queue_secs,
  'The maximum time that a request waits here for a full queue of the model,'
  ' in seconds. Then it gets 429.',
  lower_bound=0,
)
ALLOWED_ORIGINS = flags.DEFINE_list(
  'allowed_origins',
  [],
  'The web sites whose pages may use this gateway, such as https://a.example;'
  ' * for all. Default: none.',
)
_ALLOWED_HOSTS = flags.DEFINE_list(
  'allowed_hosts',
  [],
  'The accepted host names of requests, without a port. Default: localhost'
  ' and the loopback addresses if --host is one of them, or else all names.',
)
flags.DEFINE_integer(
  'max_connections_per_client',
  _DEFAULTS.max_connections_per_client,
  'The maximum number of connections per client address. Further ones get'
  ' 429. Raise it if all clients come through one proxy.',
  lower_bound=1,
)
flags.DEFINE_integer(
  'max_connections',
  _DEFAULTS.max_connections,
  'The maximum number of connections. It is lowered to what the limit of open'
  ' files allows. A further one replaces an idle one, or gets 503.',
  lower_bound=1,
)
flags.DEFINE_bool(
  'strict_requests',
  _DEFAULTS.strict_requests,
  'Reject requests with unknown members. By default, they are ignored, and the'
  ' log names each of them once.',
)


def limits() -> limits_lib.Limits:
  """Returns the limits that the flags set."""
  names = [field.name for field in dataclasses.fields(limits_lib.Limits)]
  return limits_lib.Limits(**{name: flags.FLAGS[name].value for name in names})


def allowed_hosts() -> list[str]:
  """Returns the accepted host names in lower case; [] for the default."""
  return [name.lower() for name in _ALLOWED_HOSTS.value]


def values() -> dict[str, object]:
  """Returns the flags that differ from their defaults, for a command line.

  Returns:
    The value by flag name; a list is one text, separated by commas.
  """
  shared = flags.FLAGS.flags_by_module_dict()[__name__]
  return {
    flag.name: ','.join(flag.value)
    if isinstance(flag.value, list)
    else flag.value
    for flag in shared
    if flag.value != flag.default
  }
