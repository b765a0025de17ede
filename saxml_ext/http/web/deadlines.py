"""How long a request may take.

There is no standard header for that. Envoy, which stands in front of most
gateways of Kubernetes, and the openai package each have one of their own.
"""

from collections.abc import Mapping

from saxml_ext.http.protocol import problems

# Header -> what makes seconds of it.
_SECONDS = {
  'x-request-timeout': 1.0,
  # Envoy's, to whom it passes a request on.
  'x-envoy-expected-rq-timeout-ms': 1e-3,
}
# The openai package's; how long it waits for the next bytes, which is how long
# it waits for an answer that comes whole.
_READ_TIMEOUT = 'x-stainless-read-timeout'


def seconds(headers: Mapping[str, str], stream: bool, most: float) -> float:
  """Seconds within which a request is to be answered.

  Args:
    headers: names in lower case.
    stream: whether the answer comes in parts.
    most: this server's limit.

  Raises:
    problems.BadRequest: a header is no positive number.
  """
  found = [most]
  for name, factor in _SECONDS.items():
    if name in headers:
      found.append(_number(name, headers[name]) * factor)
  if not stream and _READ_TIMEOUT in headers:
    found.append(_number(_READ_TIMEOUT, headers[_READ_TIMEOUT]))
  return min(found)


def _number(name: str, value: str) -> float:
  try:
    result = float(value)
  except ValueError:
    result = 0.0
  if not result > 0:  # Not a number, too.
    raise problems.BadRequest(
      f'the header {name}: {value[:40]} is no positive number of seconds'
      if not name.endswith('-ms')
      else f'the header {name}: {value[:40]} is no positive number'
    )
  return result
