"""The checks that every request passes on its way in and out.

It gets an id, is let in or turned away, and counted; its errors become answers
in OpenAI's form.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
import contextlib
import dataclasses
import logging
import time

from starlette import exceptions
from starlette import requests
from starlette import types

from saxml_ext.common import errors
from saxml_ext.common.security import access
from saxml_ext.common.security import tls
from saxml_ext.common.telemetry import origin
from saxml_ext.common.telemetry import traced_calls
from saxml_ext.common.telemetry import tracing
from saxml_ext.http.protocol import problems
from saxml_ext.http.protocol import templates
from saxml_ext.http.web import bodies
from saxml_ext.http.web import gateway_metrics as metrics_lib

_logger = logging.getLogger('absl')  # absl's, which writes to stderr.

# Status of a request whose client did not wait for it; nginx's number.
_GONE = 499


# An API key -> the name of its owner; None if it is nobody's.
NameOf = Callable[[str], str | None]


@dataclasses.dataclass(frozen=True)
class Options:
  """The ways in which the gateway takes requests.

  Attributes:
    name_of: checks API keys; None lets everybody in.
    max_in_flight: requests at a time; further ones are refused.
    max_body_bytes: The largest body of a request.
    request_timeout: seconds that a request may take.
    queue_secs: seconds of those that it may wait for room in a full queue.
    profile: How requests to models are read that `profiles` lacks.
    profiles: The id of a model -> how its requests are read.
    allowed_origins: whose pages may ask; "*" for all.
    local: True if this machine alone reaches the gateway. Only requests for
      loopback's names and for `allowed_hosts` are answered then.
    allowed_hosts: Names that requests may be for, in lower case. If there are
      any, others are refused.
    most_bodies: The request bodies that are received at a time from one client.
    health_routes, predict_routes: paths of these two; Vertex AI has its own.
  """

  name_of: NameOf | None = None
  max_in_flight: int = 1024
  max_body_bytes: int = 4 * 2**20
  request_timeout: float = 600.0
  queue_secs: float = 0.0
  profile: templates.Profile = templates.Profile()
  profiles: Mapping[str, templates.Profile] = dataclasses.field(
    default_factory=dict
  )
  allowed_origins: Sequence[str] = ()
  local: bool = False
  allowed_hosts: Collection[str] = ()
  most_bodies: int = 64
  health_routes: Sequence[str] = ('/health',)
  predict_routes: Sequence[str] = ('/predict',)


class Guard:
  """An ASGI application around another one.

  It tells that one, in `state`, the request's id and the record of what is to
  be counted.
  """

  def __init__(
    self, app: types.ASGIApp, metrics: metrics_lib.Metrics, options: Options
  ):
    self._app = app
    self._metrics = metrics
    self._options = options

  async def __call__(
    self, scope: types.Scope, receive: types.Receive, send: types.Send
  ) -> None:
    record = metrics_lib.Record()
    headers = requests.Request(scope).headers.items()
    request_id = tracing.id_of(headers)
    state = {'request_id': request_id, 'record': record}
    scope['state'] = {**scope.get('state', {}), **state}
    # So that starlette raises what it would answer in a form of its own.
    scope['app'] = self
    using = tracing.use_id(request_id)
    header = (tracing.REQUEST_ID.encode(), request_id.encode())
    status = _GONE

    async def send_with_id(message: types.Message) -> None:
      nonlocal status
      if message['type'] == 'http.response.start':
        status = message['status']
        message['headers'] = [*message.get('headers', ()), header]
      await send(message)

    problem = None
    try:
      with tracing.server_call(f'HTTP {scope["method"]}', headers):
        problem = await self._problem(scope, receive, send_with_id)
        # What has begun cannot become another answer: it breaks off.
        if problem and status == _GONE:
          await bodies.of_problem(problem)(scope, receive, send_with_id)
    except bodies.ClientGone:
      status = _GONE
    finally:
      status = record.error or status
      self._metrics.ended(record, status)
      _log(scope, record, status, problem)
      tracing.restore_id(using)

  async def _problem(
    self, scope: types.Scope, receive: types.Receive, send: types.Send
  ) -> problems.Problem | None:
    """Has the request answered; returns why it cannot be."""
    try:
      request, options = requests.Request(scope), self._options
      if options.local or options.allowed_hosts:
        origin.check_host(request, options.local, options.allowed_hosts)
      origin.check_origin(request, options.allowed_origins)
      await self._app(scope, receive, send)
    except problems.Problem as e:
      return e
    except errors.SaxError as e:
      return problems.of(e)
    except exceptions.HTTPException as e:
      return problems.Problem(
        e.status_code, f'{scope["method"]} {scope["path"]}: {e.detail}'
      )
    except bodies.ClientGone:
      raise
    except Exception:  # pylint: disable=broad-exception-caught
      _logger.exception('unexpected error at %s', scope['path'])
      return problems.Problem(
        500, 'a fault of the gateway; its log says more', kind='server_error'
      )
    return None


def _log(
  scope: types.Scope,
  record: metrics_lib.Record,
  status: int,
  problem: problems.Problem | None,
) -> None:
  # What clients get wrong is theirs to see; and so is a full queue.
  usual = status < 500
  if not traced_calls.is_logged(usual):
    return
  found = {
    'method': f'{scope["method"]} {record.route or "-"}',
    'model': record.model,
    'code': status,
    'seconds': round(time.monotonic() - record.begin, 6),
    'caller': scope['state'].get('caller', ''),
    'request_id': scope['state']['request_id'],
  }
  _logger.log(
    logging.INFO if usual else logging.WARNING,
    '%(method)s %(model)s %(code)d after %(seconds).3f s, request'
    ' %(request_id)s of %(caller)s%(why)s',
    {name: '-' if value == '' else value for name, value in found.items()}
    | {'why': f': {problem.message}' if problem else ''},
    extra={'fields': found},
  )


class Admission:
  """Lets requests in that ask the cell, and says for whom."""

  def __init__(self, options: Options, metrics: metrics_lib.Metrics):
    self._name_of = options.name_of
    self._most = options.max_in_flight
    self._in_flight = metrics.in_flight
    self._has_name = options.name_of is not None or tls.current().is_set
    self._count = 0

  def around(self, app: types.ASGIApp) -> types.ASGIApp:
    """Returns the application, for those who are let in."""

    async def admitted(
      scope: types.Scope, receive: types.Receive, send: types.Send
    ) -> None:
      caller = self._caller(requests.Request(scope))
      scope['state']['caller'] = caller
      sent = tracing.OUTGOING.get()
      if self._has_name:
        # Else a cell would take the gateway itself for the caller.
        sent = ((access.METADATA_KEY, caller), *sent)
      token = tracing.OUTGOING.set(sent)
      try:
        await app(scope, receive, send)
      finally:
        tracing.OUTGOING.reset(token)

    return admitted

  @contextlib.contextmanager
  def place(self) -> Iterator[None]:
    """Counts a request that has arrived as being in flight.

    Raises:
      problems.Problem: There are as many as there may be.
    """
    if self._count >= self._most:
      raise problems.too_busy(
        f'{self._count} requests are in flight, which is the limit of this'
        ' gateway; try again soon'
      )
    self._count += 1
    self._in_flight.inc()
    try:
      yield
    finally:
      self._in_flight.dec()
      self._count -= 1

  def _caller(self, request: requests.Request) -> str:
    if self._name_of is None:
      return ''
    kind, _, key = request.headers.get('authorization', '').partition(' ')
    name = self._name_of(key.strip()) if kind.lower() == 'bearer' else None
    if name is None:
      raise problems.Problem(
        401,
        'no valid API key was sent; send "Authorization: Bearer <key>"',
        kind='authentication_error',
        code='invalid_api_key',
      )
    return name
