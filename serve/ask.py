"""Asks a model one question, and prints its answer as it is generated.

    ask "What is the capital of France?"
    ask <question.txt

The question goes to a running `serve` on --port. If none is running, `serve`'s
default model is started for this question and stopped afterwards. The exit code
is 1 if the answer is incomplete. $OPENAI_API_KEY is sent if it is set.
"""

from collections.abc import Iterator, Sequence
import http.client
import json
import os
import sys
import time
from typing import Any

from absl import flags

from converters.hf import smollm2
from saxml_ext.common import program
from serve import children
from serve import endpoint as endpoint_lib
from serve import programs

_PORT = flags.DEFINE_integer(
  'port',
  endpoint_lib.DEFAULT_PORT,
  'The port of the running serve on this machine.',
  lower_bound=1,
  upper_bound=65535,
)
_MODEL = flags.DEFINE_string(
  'model', None, 'The name of the model. Default: the only served model.'
)
_MAX_TOKENS = flags.DEFINE_integer(
  'max_tokens',
  None,
  "The maximum answer length, in tokens. Default: the model's own limit.",
  lower_bound=1,
)
_TEMPERATURE = flags.DEFINE_float(
  'temperature',
  0.0,
  'The sampling temperature. 0 takes the likeliest token at each step.',
  lower_bound=0,
)

_KEY = 'OPENAI_API_KEY'
_READY = 'Ready: '
_EVENT, _END = 'data: ', '[DONE]'
# On a busy machine, a model may take a long time for its first token.
_SILENCE_SECS = 600.0
_LOADING_SECS = 1800.0


def _request(question: str) -> dict[str, Any]:
  request: dict[str, Any] = {
    'messages': [{'role': 'user', 'content': question}],
    'stream': True,
  }
  for flag in (_MODEL, _MAX_TOKENS, _TEMPERATURE):
    if flag.value is not None:
      request[flag.name] = flag.value
  return request


def _ask(endpoint: endpoint_lib.Endpoint, question: str) -> Iterator[str]:
  """Yields the parts of an answer as they arrive.

  Raises:
    programs.ServeError: The gateway rejects the question, or the answer is cut
    off.
  """
  headers = {'Content-Type': 'application/json'}
  if key := os.environ.get(_KEY):
    headers['Authorization'] = f'Bearer {key}'
  connection = http.client.HTTPConnection(
    endpoint.address, timeout=_SILENCE_SECS
  )
  try:
    response = _post(connection, json.dumps(_request(question)), headers)
    if response.status != 200:
      raise programs.ServeError(_reason(response.read(), response.status))
    for line in response:
      text = line.decode().strip()
      if not text.startswith(_EVENT):
        continue
      if text == _EVENT + _END:
        return
      event = json.loads(text.removeprefix(_EVENT))
      if 'error' in event:
        raise programs.ServeError(event['error']['message'])
      for choice in event['choices']:
        yield choice['delta'].get('content') or ''
    raise programs.ServeError(f'The answer of {endpoint.url} ended too early.')
  except (OSError, http.client.HTTPException, ValueError) as e:
    raise programs.ServeError(f'{endpoint.url}: {e}') from e
  finally:
    connection.close()


def _post(
  connection: http.client.HTTPConnection, body: str, headers: dict[str, str]
) -> http.client.HTTPResponse:
  """Sends a request again while the server says when to try again.

  A model that is loading is waited for, with its progress on stderr.
  """
  deadline = time.monotonic() + _LOADING_SECS
  while True:
    connection.request('POST', '/v1/chat/completions', body, headers)
    response = connection.getresponse()
    delay = response.getheader('Retry-After') or ''
    is_loading = response.status == 503 and delay.isdecimal()
    if not is_loading or time.monotonic() + int(delay) > deadline:
      return response
    print(f'ask: {_reason(response.read(), 503)}', file=sys.stderr, flush=True)
    time.sleep(int(delay))


def _reason(body: bytes, status: int) -> str:
  """Returns the error message in an answer of the gateway."""
  try:
    return json.loads(body)['error']['message']
  except (ValueError, KeyError, TypeError):
    return f'status {status}: {body[:200].decode(errors="replace")}'


def _print(endpoint: endpoint_lib.Endpoint, question: str) -> None:
  for part in _ask(endpoint, question):
    print(part, end='', flush=True)
  print()


def _started(group: children.Children) -> endpoint_lib.Endpoint:
  """Starts a `serve` of the default model; returns its endpoint.

  Raises:
    programs.ServeError: The process ended before it could serve.
  """
  print(
    f'ask: no server answers on port {_PORT.value}. Starting {smollm2.NAME}',
    file=sys.stderr,
    flush=True,
  )
  server = group.start_piped(
    'server', programs.command(programs.SERVE, {'port': 0}), ''
  )
  for line in children.output(server):
    text = line.decode()
    if text.startswith(_READY):
      port = int(text.strip().rpartition(':')[2])
      return endpoint_lib.Endpoint(endpoint_lib.LOOPBACK, port)
  server.process.wait()
  raise server.error()


def _run(words: Sequence[str]) -> None:
  question = ' '.join(words) if words else sys.stdin.read().strip()
  if not question:
    raise programs.ServeError(
      'The question is empty. Pass it as an argument or on standard input.'
    )
  endpoint = endpoint_lib.Endpoint(endpoint_lib.LOOPBACK, _PORT.value)
  if endpoint.answers():
    _print(endpoint, question)
    return
  if _MODEL.value:
    raise programs.ServeError(
      f'--model={_MODEL.value}: no server answers on port {_PORT.value}.'
      ' Start serve with that model, or omit the flag for the default one.'
    )
  with children.Children() as group:
    _print(_started(group), question)


def main(argv: Sequence[str]) -> int:
  return children.run_stoppable('ask', lambda: _run(argv[1:]), 130)


if __name__ == '__main__':
  program.run(main, program.underscored(sys.argv), takes_words=True)
