"""Measures the time from starting serve to the first streamed token.

    start_time --rounds=3

Each round starts serve with the bundled model, sends one question and stops
serve. The first round may compile programs, which its row shows.
"""

from collections.abc import Sequence
import http.client
import json
import os
import re
import signal
import subprocess
import tempfile
import time

from absl import flags

from saxml_ext.common import program
from saxml_ext.common import user_path
from serve import programs

_ROUNDS = flags.DEFINE_integer('rounds', 3, 'Starts to measure.', 1)
_MOST_SECS = flags.DEFINE_float(
  'most_secs',
  None,
  'Fail if a start takes longer. Default: only report.',
  lower_bound=0,
)

_PROGRAMS = re.compile(
  r'(\d+) loaded, (\d+) compiled \(([\d.]+) s\)|loaded \S+ in ([\d.]+) s'
)


def _first_token(address: str) -> None:
  connection = http.client.HTTPConnection(address, timeout=600)
  body = {
    'messages': [{'role': 'user', 'content': 'Hello'}],
    'stream': True,
    'max_tokens': 8,
  }
  connection.request(
    'POST',
    '/v1/chat/completions',
    json.dumps(body),
    {'Content-Type': 'application/json'},
  )
  for line in connection.getresponse():
    text = line.decode().strip().removeprefix('data: ')
    if text.startswith('{') and any(
      choice['delta'].get('content') for choice in json.loads(text)['choices']
    ):
      return
  raise RuntimeError('the answer has no token')


def _round() -> tuple[float, ...]:
  """Returns the seconds of a start, and those that the log reports.

  Returns:
    The seconds until the servers run, until the model is loaded and until the
    first token, and the values of `_of_log`.
  """
  begin = time.monotonic()
  command = programs.command(programs.SERVE, {'port': 0})
  process = subprocess.Popen(
    command.argv,
    env=dict(command.env),
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    text=True,
  )
  logs, servers = '', 0.0
  try:
    assert process.stdout is not None
    for line in process.stdout:
      if line.startswith('logs are in '):
        logs = line.strip().removeprefix('logs are in ')
      elif 'publishing' in line:
        servers = time.monotonic() - begin
      elif line.startswith('Ready: '):
        break
    else:
      raise RuntimeError('serve ended before it was ready')
    ready = time.monotonic() - begin
    _first_token(line.strip().rpartition('/')[2])
    token = time.monotonic() - begin
    return (servers, ready, token, *_of_log(logs))
  finally:
    process.send_signal(signal.SIGINT)
    process.communicate()


def _of_log(logs: str) -> tuple[float, float, float]:
  """Returns values from the log of the model server.

  Returns:
    The number of compiled programs, and the seconds for programs and for the
    whole load.
  """
  compiled = program_secs = load_secs = 0.0
  with open(os.path.join(logs, 'model_server.log'), encoding='utf-8') as file:
    for match in _PROGRAMS.finditer(file.read()):
      if match[4]:
        load_secs = float(match[4])
      else:
        compiled, program_secs = float(match[2]), float(match[3])
  return compiled, program_secs, load_secs


def main(argv: Sequence[str]) -> int:
  del argv
  print(
    'seconds    servers  ready  first token  load  of it programs  compiled'
  )
  slowest = 0.0
  with tempfile.TemporaryDirectory() as cache:
    os.environ[user_path.CACHE] = cache
    for number in range(_ROUNDS.value):
      servers, ready, token, compiled, program_secs, load = _round()
      slowest = max(slowest, token)
      print(
        f'start {number + 1:<4} {servers:>7.2f} {ready:>6.2f} {token:>12.2f}'
        f' {load:>5.2f} {program_secs:>14.2f} {compiled:>9.0f}',
        flush=True,
      )
  if _MOST_SECS.value is not None and slowest > _MOST_SECS.value:
    print(
      f'The slowest start took {slowest:.2f} s; the limit is'
      f' {_MOST_SECS.value:g} s.'
    )
    return 1
  return 0


if __name__ == '__main__':
  program.run(main)
