"""Compares one stream of serve in several number formats, and with llama.cpp.

    one_chat --quantize=int8,int4,none --llama_cpp=DIR

The program starts `serve` with its default model, SmolLM2-135M-Instruct, once
for each number format. It loads the same weights into llama.cpp as Q8_0, and in
the format of the file, Q4_1. They answer one chat in turn, greedily, with the
same threads. The table shows tokens per second after the first token, its
delay, and the memory of the model server. The program exits with 1 if serve is
slower in int8 than llama.cpp with Q8_0, or in int4 than with Q4_1.

DIR has a llama-cpp-python that was built for this machine; see
docs/benchmarks.md. Without it, only serve is measured.
"""

from collections.abc import Callable, Iterator, Sequence
import dataclasses
import functools
import glob
import http.client
import importlib
import json
import os
import statistics
import sys
import tempfile
import time

from absl import flags
import gguf
import psutil

from converters.hf import smollm2
from saxml_ext.common import program
from saxml_ext.common import user_path
from serve import children
from serve import programs

_LLAMA_CPP = flags.DEFINE_string(
  'llama_cpp', None, 'The directory of the built llama-cpp-python.'
)
_QUANTIZE = flags.DEFINE_list(
  'quantize', [programs.INT8], 'The number formats of serve.'
)
_ROUNDS = flags.DEFINE_integer('rounds', 3, 'The number of rounds.', 1)
_TOKENS = flags.DEFINE_integer('tokens', 128, 'The tokens of an answer.', 2)
flags.register_validator(
  'quantize',
  lambda names: names and set(names) <= {*programs.NUMBER_FORMATS},
  f'Available: {", ".join(programs.NUMBER_FORMATS)}.',
)

_MESSAGES = [{'role': 'user', 'content': 'Tell me a long story about a fox.'}]
_CONTEXT = 8192
_READY = 'Ready: '
# The peers of number formats, which have as many bits.
_PEERS = {programs.INT8: 'llama.cpp Q8_0', programs.INT4: 'llama.cpp Q4_1'}


@dataclasses.dataclass(frozen=True)
class Speed:
  """The speed of one answer.

  Attributes:
    first: The seconds until the first token.
    rate: The tokens per second after it.
  """

  first: float
  rate: float


def _measured(counts: Callable[[], Iterator[int]]) -> Speed:
  """Returns the speed of a stream.

  Args:
    counts: A function that sends the request, and yields the number of tokens
      so far after each message.
  """
  begin = time.monotonic()
  arrived = [(time.monotonic(), count) for count in counts()]
  (first, before), (last, tokens) = arrived[0], arrived[-1]
  if tokens != _TOKENS.value:
    raise RuntimeError(f'The answer has {tokens} tokens.')
  return Speed(first - begin, (tokens - before) / (last - first))


def _serve_counts(port: int) -> Iterator[int]:
  connection = http.client.HTTPConnection('127.0.0.1', port, timeout=600)
  body = {
    'messages': _MESSAGES,
    'temperature': 0,
    'max_tokens': _TOKENS.value,
    'stream': True,
    'stream_options': {'include_usage': True, 'continuous_usage_stats': True},
  }
  headers = {'Content-Type': 'application/json'}
  connection.request('POST', '/v1/chat/completions', json.dumps(body), headers)
  for line in connection.getresponse():
    text = line.decode().strip().removeprefix('data: ')
    event = json.loads(text) if text.startswith('{') else {'choices': []}
    for choice in event['choices']:
      if choice['delta'].get('content'):
        yield event['usage']['completion_tokens']
  connection.close()


def _llama_counts(model) -> Iterator[int]:
  model.reset()  # Otherwise, it would not read the prompt again.
  tokens = 0
  for event in model.create_chat_completion(
    _MESSAGES, temperature=0, max_tokens=_TOKENS.value, stream=True
  ):
    if event['choices'][0]['delta'].get('content'):
      tokens += 1
      yield tokens


def _write_q8_0(source: str, target: str) -> None:
  """Writes a GGUF file again, with all matrices as Q8_0."""
  reader = gguf.GGUFReader(source)
  architecture = reader.fields['general.architecture'].contents()
  writer = gguf.GGUFWriter(target, architecture)
  for name, field in reader.fields.items():
    if name.startswith('GGUF.') or name == 'general.architecture':
      continue
    kinds = field.types
    sub_type = kinds[-1] if kinds[0] == gguf.GGUFValueType.ARRAY else None
    writer.add_key_value(name, field.contents(), kinds[0], sub_type)
  kind = gguf.GGMLQuantizationType.Q8_0
  for tensor in reader.tensors:
    values = gguf.dequantize(tensor.data, tensor.tensor_type)
    if values.ndim > 1:
      writer.add_tensor(
        tensor.name, gguf.quantize(values, kind), raw_dtype=kind
      )
    else:
      writer.add_tensor(tensor.name, values)
  writer.write_header_to_file()
  writer.write_kv_data_to_file()
  writer.write_tensors_to_file()
  writer.close()


def _start_serve(
  group: children.Children, cache: str, quantize: str
) -> tuple[int, psutil.Process]:
  """Starts serve.

  Args:
    group: The owner of its process.
    cache: An empty directory.
    quantize: The number format.

  Returns:
    Its port and its model server, when all programs are compiled.

  Raises:
    children.ChildError: It ended.
  """
  options = {'port': 0, 'quantize': quantize}
  server = group.start_piped(
    'serve',
    programs.command(programs.SERVE, options, {'GPTJ_SAX_CACHE': cache}),
    '',
  )
  for line in children.output(server):
    if line.decode().startswith(_READY):
      _wait_for_programs(cache)
      below = psutil.Process(server.process.pid).children(recursive=True)
      # The process that computes has the most memory.
      model_server = max(below, key=lambda child: child.memory_info().rss)
      return int(line.decode().strip().rpartition(':')[2]), model_server
  raise server.error()


def _wait_for_programs(cache: str) -> None:
  """Returns when serve compiles nothing more behind its first programs."""
  [log] = glob.glob(os.path.join(cache, 'serve', '*', 'logs/model_server.log'))
  while True:
    with open(log, encoding='utf-8') as file:
      if file.read().count('programs are ready: ') > 1:
        return
    time.sleep(1)


def _peers(cache: str, threads: int) -> dict[str, Callable[[], Iterator[int]]]:
  """Loads the weights into llama.cpp; returns its streams by name."""
  sys.path.insert(0, user_path.resolve(_LLAMA_CPP.value) or '')
  llama_cpp = importlib.import_module('llama_cpp')
  q8_0 = os.path.join(cache, 'q8_0.gguf')
  _write_q8_0(smollm2.path(), q8_0)
  paths = {'llama.cpp Q8_0': q8_0, 'llama.cpp Q4_1': smollm2.path()}
  models = {
    name: llama_cpp.Llama(
      path, n_ctx=_CONTEXT, n_threads=threads, verbose=False
    )
    for name, path in paths.items()
  }
  return {
    name: functools.partial(_llama_counts, model)
    for name, model in models.items()
  }


def main(argv: Sequence[str]) -> int:
  del argv
  threads = len(os.sched_getaffinity(0))
  engines: dict[str, Callable[[], Iterator[int]]] = {}
  servers: dict[str, psutil.Process] = {}
  with tempfile.TemporaryDirectory() as cache, children.Children() as group:
    for quantize in _QUANTIZE.value:
      name = f'serve {quantize}'
      directory = os.path.join(cache, quantize)
      port, servers[name] = _start_serve(group, directory, quantize)
      engines[name] = functools.partial(_serve_counts, port)
    if _LLAMA_CPP.value:
      engines |= _peers(cache, threads)
    speeds: dict[str, list[Speed]] = {name: [] for name in engines}
    for turn in range(_ROUNDS.value + 1):
      for name, counts in engines.items():
        speed = _measured(counts)
        if turn:  # The first one warms up.
          speeds[name].append(speed)
    memory = {
      name: server.memory_info().rss for name, server in servers.items()
    }
  rates = {}
  print(f'{threads} threads, {_TOKENS.value} tokens, {_ROUNDS.value} rounds')
  for name, values in speeds.items():
    rates[name] = statistics.median(speed.rate for speed in values)
    first = statistics.median(speed.first for speed in values)
    used = f', {memory[name] / 2**20:.0f} MiB' if name in memory else ''
    print(
      f'{name:15} {rates[name]:6.1f} tokens/s, first after {first:.3f} s{used}'
    )
  met = True
  for quantize, peer in _PEERS.items():
    if {name := f'serve {quantize}', peer} <= set(rates):
      ratio = rates[name] / rates[peer]
      print(f'{name} / {peer}: {ratio:.2f}')
      met = met and ratio >= 1
  return 0 if met else 1


if __name__ == '__main__':
  program.run(main)
