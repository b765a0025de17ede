"""Checks every request, and formats errors.

Each request gets an id, is accepted or rejected, and is counted. Its errors
become answers in OpenAI's format.
"""

import asyncio
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
from saxml_ext.http import limits
from saxml_ext.http.protocol import problems
from saxml_ext.http.protocol import templates
from saxml_ext.http.web import bodies
from saxml_ext.http.web import gateway_metrics as metrics_lib

_logger = logging.getLogger('absl')  # absl's logger writes to stderr.

# nginx's status for a request whose client disconnected before the answer.
_DISCONNECTED = 499


# A function from an API key to the name of its owner, or None if unknown.
NameOf = Callable[[str], str | None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(limits.Limits):
  """The options of the gateway for requests.

  Attributes:
    name_of: The function that checks API keys; None admits everybody.
    profile: The profile of models that are not in `profiles`.
    profiles: The profiles by model id.
    allowed_origins: The origins whose pages may send requests; "*" for all.
    local: True if only this machine can reach the gateway. Then, requests must
      name a loopback host or one of `allowed_hosts`.
    allowed_hosts: The host names that requests may have, in lower case. If it
      is not empty, other hosts are rejected.
    most_bodies: The maximum number of bodies that one client may send at a
      time.
    health_routes: The paths of the health check; Vertex AI adds its own.
    predict_routes: The paths of predictions; Vertex AI adds its own.
    status_page: The URL of the cell's status page, or '' if it is unknown.
  """

  name_of: NameOf | None = None
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
  status_page: str = ''

  def profile_of(self, model_id: str) -> templates.Profile:
    """Returns the profile of a model."""
    return self.profiles.get(model_id, self.profile)


class Guard:
  """An ASGI application around another one.

  It passes the id and the record of the request to the inner application, in
  `state`.
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
    # With an app set, starlette raises errors instead of formatting them
    # itself.
    scope['app'] = self
    using = tracing.use_id(request_id)
    header = (tracing.REQUEST_ID.encode(), request_id.encode())
    status = _DISCONNECTED

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
        # A response that has begun cannot be replaced by an error, so it is cut
        # off.
        if problem and status == _DISCONNECTED:
          await bodies.problem_response(problem)(scope, receive, send_with_id)
    except bodies.ClientDisconnected:
      status = _DISCONNECTED
    finally:
      status = record.error or (problem.status if problem else status)
      self._metrics.ended(record, status)
      _log(scope, record, status, problem)
      tracing.restore_id(using)

  async def _problem(
    self, scope: types.Scope, receive: types.Receive, send: types.Send
  ) -> problems.Problem | None:
    """Runs the inner application; returns the problem if the request failed."""
    try:
      request, options = requests.Request(scope), self._options
      if options.local or options.allowed_hosts:
        origin.check_host(request, options.local, options.allowed_hosts)
      origin.check_origin(request, options.allowed_origins)
      await self._app(scope, receive, send)
    except (problems.Problem, errors.SaxError) as e:
      problem = problems.from_error(e)
      problem.message = scope['state']['record'].public(problem.message)
      return problem
    except exceptions.HTTPException as e:
      methods = (e.headers or {}).get('Allow')
      return problems.Problem(
        e.status_code,
        f'{scope["method"]} {scope["path"]}: {e.detail}',
        allow=methods and ', '.join(sorted(methods.split(', '))),
      )
    except bodies.ClientDisconnected:
      raise
    except asyncio.CancelledError:
      # Uvicorn cancels the requests that are left when the drain time is over.
      return problems.from_error(
        errors.Unavailable(
          'the gateway stops, and the request was not finished in time. Send it'
          ' again'
        )
      )
    except Exception:  # pylint: disable=broad-exception-caught
      _logger.exception('unexpected error at %s', scope['path'])
      return problems.Problem(
        500,
        'an internal error of the gateway. Its log has the details',
        kind='server_error',
      )
    return None


def _log(
  scope: types.Scope,
  record: metrics_lib.Record,
  status: int,
  problem: problems.Problem | None,
) -> None:
  # Client errors and a full queue are normal, so they are no failures here.
  usual = status < 500
  if not traced_calls.is_logged(usual):
    return
  fields = {
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
    {name: '-' if value == '' else value for name, value in fields.items()}
    | {'why': f': {problem.message}' if problem else ''},
    extra={'fields': fields},
  )


class Admission:
  """Checks requests that use the cell, and finds their callers."""

  def __init__(self, options: Options, metrics: metrics_lib.Metrics):
    self._name_of = options.name_of
    self._most = options.max_in_flight
    self._in_flight = metrics.in_flight
    self._has_name = options.name_of is not None or tls.current().is_set
    self._count = 0

  def around(self, app: types.ASGIApp) -> types.ASGIApp:
    """Returns the application, wrapped in a check of the API key."""

    async def admitted(
      scope: types.Scope, receive: types.Receive, send: types.Send
    ) -> None:
      caller = self._caller(requests.Request(scope))
      scope['state']['caller'] = caller
      sent = tracing.OUTGOING.get()
      if self._has_name:
        # Without this, the cell would take the gateway itself for the caller.
        sent = ((access.METADATA_KEY, caller), *sent)
      token = tracing.OUTGOING.set(sent)
      try:
        await app(scope, receive, send)
      finally:
        tracing.OUTGOING.reset(token)

    return admitted

  @contextlib.contextmanager
  def slot(self) -> Iterator[None]:
    """Counts a request as in flight.

    Raises:
      problems.Problem: The limit of requests in flight is reached.
    """
    if self._count >= self._most:
      raise problems.too_busy(
        f'{self._count} requests are in flight, the limit of this gateway.'
        ' Try again soon'
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
        'no valid API key was sent. Send "Authorization: Bearer <key>"',
        kind='authentication_error',
        code='invalid_api_key',
      )
    return name
