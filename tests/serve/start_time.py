"""Measures the parts of a start of serve, and compares them with the bars.

    start_time                       SmolLM2-135M-Instruct
    start_time --model=llama_1b      random weights, the sizes of Llama 3.2 1B
    start_time --model=gptj-small    or llama-small, the bundled models

Each start runs serve until it is ready, sends one question and stops serve. The
first start has an empty cache: it converts the model and compiles programs. The
program exits with 1 if a start takes longer than its bar, in seconds from the
command to Ready. The bars are for two idle cores.
"""

from collections.abc import Sequence
import dataclasses
import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time

from absl import flags

from saxml_ext.common import program
from saxml_ext.common import user_path
from serve import programs

# The bars of the first start and of later ones, in seconds.
_BARS = {
  'smollm2': (30.0, 5.0),
  'gptj-small': (5.0, 5.0),
  'llama-small': (5.0, 5.0),
  'llama_1b': (90.0, 10.0),
}
_MODEL = flags.DEFINE_enum(
  'model', 'smollm2', list(_BARS), 'The model to serve.'
)
_STARTS = flags.DEFINE_integer('starts', 3, 'Starts to measure.', 1)

_RANDOM_HF = 'converters/random_hf'
_TOKENIZER = os.path.join(
  programs.ROOT, 'harness', 'bundled', 'llama', 'model', 'tokenizer.json'
)
# The values that the model server's log has, by column.
_LOG_VALUES = {
  'weights': re.compile(r'\] read \S+ \(([\d.]+) s\)'),
  'programs': re.compile(r'programs are ready: .*\(([\d.]+) s\)'),
  'compiled': re.compile(r'programs are ready: .* (\d+) compiled'),
}
# The lines of serve that end a part of the start, by column.
_LINES = {
  'processes': 'starting a cell',
  'checks': 'Matrices are ',
  'converted': 'Wrote ',
  'servers': 'publishing',
  'ready': 'Ready: ',
}
_COLUMNS = (*_LINES, 'first token', *_LOG_VALUES)


@dataclasses.dataclass
class _Start:
  """The seconds from the command to each event, and values of the log."""

  values: dict[str, float] = dataclasses.field(default_factory=dict)

  def __str__(self) -> str:
    return ''.join(
      f'{self.values[c]:>13.1f}' if c in self.values else f'{"-":>13}'
      for c in _COLUMNS
    )


def _words(directory: str) -> list[str]:
  """Returns the words of serve's command line; makes random weights."""
  if _MODEL.value == 'smollm2':
    return []
  if _MODEL.value != 'llama_1b':
    return [_MODEL.value]
  path = os.path.join(directory, 'llama_1b')
  command = programs.command(
    _RANDOM_HF,
    {
      'out': path,
      'family': 'llama',
      'dtype': 'bfloat16',
      'layers': 16,
      'dim': 2048,
      'heads': 32,
      'kv_heads': 8,
      'hidden': 8192,
      'vocab': 128256,
    },
  )
  subprocess.run(command.argv, env=dict(command.env), check=True)
  shutil.copy(_TOKENIZER, path)
  return [path]


def _first_token(address: str) -> None:
  connection = http.client.HTTPConnection(address, timeout=600)
  body = {
    'messages': [{'role': 'user', 'content': 'Hello'}],
    'stream': True,
    'stream_options': {'include_usage': True, 'continuous_usage_stats': True},
    'max_tokens': 8,
    'ignore_eos': True,
  }
  connection.request(
    'POST',
    '/v1/chat/completions',
    json.dumps(body),
    {'Content-Type': 'application/json'},
  )
  for line in connection.getresponse():
    text = line.decode().strip().removeprefix('data: ')
    # Tokens of random weights may have no text.
    usage = json.loads(text).get('usage') if text.startswith('{') else None
    if usage and usage['completion_tokens']:
      return
  raise RuntimeError('The answer has no token.')


def _measure(words: Sequence[str]) -> _Start:
  """Starts serve once, and stops it after one token."""
  command = programs.command(programs.SERVE, {'port': 0}, words=words)
  start, logs, output = _Start(), '', []
  begin = time.monotonic()
  process = subprocess.Popen(
    command.argv,
    env=dict(command.env),
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    text=True,
  )
  try:
    assert process.stdout is not None
    for line in process.stdout:
      output.append(line)
      if line.startswith('logs are in '):
        logs = line.strip().removeprefix('logs are in ')
      for column, text in _LINES.items():
        if text in line:
          start.values.setdefault(column, time.monotonic() - begin)
      if line.startswith(_LINES['ready']):
        break
    else:
      raise RuntimeError(f'serve ended before it was ready:\n{"".join(output)}')
    _first_token(line.strip().rpartition('/')[2])
    start.values['first token'] = time.monotonic() - begin
    with open(f'{logs}/model_server.log', encoding='utf-8') as file:
      log = file.read()
    for column, pattern in _LOG_VALUES.items():
      if match := pattern.search(log):
        start.values[column] = float(match[1])
    return start
  finally:
    process.send_signal(signal.SIGINT)
    process.communicate()


def main(argv: Sequence[str]) -> int:
  del argv
  problems = []
  with tempfile.TemporaryDirectory() as directory:
    os.environ[user_path.CACHE] = os.path.join(directory, 'cache')
    words = _words(directory)
    print(
      f'{_MODEL.value}: seconds from the command to each event; seconds of the'
      ' model server for weights and programs'
    )
    print('start' + ''.join(f'{column:>13}' for column in _COLUMNS))
    for number in range(_STARTS.value):
      start = _measure(words)
      print(f'{number + 1:<5}{start}', flush=True)
      bar = _BARS[_MODEL.value][min(number, 1)]
      if start.values['ready'] > bar:
        problems.append(
          f'Start {number + 1} took {start.values["ready"]:.1f} s. The bar is'
          f' {bar:g} s.'
        )
  print('\n'.join(problems) or 'All starts meet their bars.')
  return 1 if problems else 0


if __name__ == '__main__':
  program.run(main)
