"""Sends several times the capacity through the gateway, by OpenAI's client."""

import asyncio
from collections.abc import Sequence
import contextlib
import dataclasses
import resource
import time
import urllib.error
import urllib.parse
import urllib.request

import openai

from tests.chaos import processes
from tests.reliability import served as served_lib
from tests.reliability.results import figures

_GATEWAY = 'saxml_ext.http.gateway'
_STEP_SECS = 0.2
_SLOTS = 16
_TOKENS = 4
_OVERRIDES = {
  'BATCH_SIZE': str(_SLOTS),
  'MAX_LIVE_BATCHES': '4',
  'MAX_DECODE_STEPS': str(_TOKENS),
  'MIN_DECODE_STEPS': '1',
}
# The number of requests per second that the engine can answer.
_CAPACITY = _SLOTS / (_TOKENS * _STEP_SECS)
_TIMES = 5.0
_REFUSED = 429
# The number of connections from another address that announce a body and never
# send it.
_SLOW = 1030
_OTHER_ADDRESS = '127.0.0.2'
_SLOW_REQUEST = (
  b'POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n'
  b'Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{'
)
_MEANWHILE = 20


@dataclasses.dataclass(frozen=True)
class _Answer:
  """The end of a request.

  Attributes:
    status: The HTTP status; 0 if there was none.
    hinted: True if the answer has a retry delay.
    at: The monotonic time of the end.
    secs: The duration in seconds.
  """

  status: int
  hinted: bool
  at: float
  secs: float


async def _ask(client: openai.AsyncOpenAI, number: int) -> _Answer:
  begin = time.monotonic()
  status, hinted = 200, False
  try:
    await client.completions.create(
      model=served_lib.MODEL, prompt=[number % 5000, 7], max_tokens=_TOKENS
    )
  except openai.APIStatusError as e:
    status, hinted = e.status_code, 'retry-after' in e.response.headers
  except openai.APIConnectionError:
    status = 0
  now = time.monotonic()
  return _Answer(status, hinted, now, now - begin)


async def _flood(address: str, secs: float) -> list[_Answer]:
  """Sends requests for some seconds; returns the answers within that time."""
  async with openai.AsyncOpenAI(
    base_url=f'{address}/v1', api_key='none', max_retries=0, timeout=60.0
  ) as client:
    await _ask(client, 0)  # The first call has additional overhead.
    calls = []
    begin = time.monotonic()
    while time.monotonic() < begin + secs:
      calls.append(asyncio.create_task(_ask(client, len(calls))))
      due = begin + len(calls) / (_TIMES * _CAPACITY)
      await asyncio.sleep(max(0.0, due - time.monotonic()))
    answers = await asyncio.gather(*calls)
  return [a for a in answers if a.at < begin + secs]


async def _answers_meanwhile(address: str, model: str) -> tuple[int, float]:
  """Sends requests while slow clients hold connections.

  Returns:
    The number of failed requests, and the seconds of the slowest one.
  """
  target = urllib.parse.urlsplit(address)
  async with contextlib.AsyncExitStack() as stack:
    for _ in range(_SLOW):
      _, writer = await asyncio.open_connection(
        target.hostname, target.port, local_addr=(_OTHER_ADDRESS, 0)
      )
      stack.callback(writer.close)
      writer.write(_SLOW_REQUEST)
    failed, slowest = 0, 0.0
    async with openai.AsyncOpenAI(
      base_url=f'{address}/v1', api_key='none', max_retries=0, timeout=30.0
    ) as client:
      for _ in range(_MEANWHILE):
        begin = time.monotonic()
        try:
          await client.completions.create(
            model=model, prompt=[1, 7], max_tokens=_TOKENS
          )
        except openai.APIError:
          failed += 1
        slowest = max(slowest, time.monotonic() - begin)
  return failed, slowest


def _rebound_status(address: str) -> int:
  request = urllib.request.Request(
    f'{address}/v1/models', headers={'Host': 'evil.example'}
  )
  try:
    with urllib.request.urlopen(request, timeout=30) as response:
      return response.status
  except urllib.error.HTTPError as e:
    return e.code


def hostile(address: str, model: str) -> list[figures.Figure]:
  """Measures the effect of slow clients and a rebound host name on others.

  Args:
    address: The address of the gateway.
    model: The model to call meanwhile.
  """
  _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
  resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
  failed, slowest = asyncio.run(_answers_meanwhile(address, model))
  return [
    figures.Figure('gateway: slow connections of one client', _SLOW),
    figures.Figure(
      f'gateway: of {_MEANWHILE} requests of others, failed', failed, most=0
    ),
    figures.Figure('gateway: slowest of these', slowest, 's'),
    figures.Figure(
      'gateway: status for a rebound host', _rebound_status(address), least=403
    ),
  ]


def measure(directory: str, secs: float = 20.0) -> list[figures.Figure]:
  """Returns the figures of the row that concern HTTP.

  Args:
    directory: An empty directory.
    secs: The duration of the overload, in seconds.
  """
  flags = [f'--step_secs={_STEP_SECS}']
  with served_lib.start(directory, flags, _OVERRIDES) as served:
    gateway = served.cell.start(_GATEWAY, ['--queue_secs=0'])
    answers = asyncio.run(_flood(gateway.address, secs))
    refusals = hostile(gateway.address, served_lib.MODEL)
  return [*_figures(answers, secs), *refusals]


def _figures(answers: Sequence[_Answer], secs: float) -> list[figures.Figure]:
  refused = [a for a in answers if a.status == _REFUSED]
  good = sum(a.status == 200 for a in answers)
  # There is no answer within the time of the first request.
  able = _CAPACITY * (secs - _TOKENS * _STEP_SECS)
  return [
    figures.Figure(
      'gateway: answered, of what the engine can',
      100 * good / able,
      '%',
      least=90,
    ),
    figures.Figure('gateway: refused with 429', len(refused), least=1),
    figures.none_of(
      'gateway: refused without Retry-After',
      [a for a in refused if not a.hinted],
    ),
    figures.none_of(
      'gateway: other failures',
      [a for a in answers if a.status not in (200, _REFUSED)],
    ),
    figures.Figure(
      'gateway: refused within (p99)',
      1e3 * processes.percentile([a.secs for a in refused] or [0.0], 99),
      'ms',
    ),
  ]
