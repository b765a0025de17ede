"""Measures the host's time per decode call on CPU devices.

While the host reads a call's results and starts the next programs, the chips
wait. This program calls functions with the engine's arguments and results, but
without its work. It uses as many CPU devices as the slice has chips. The
overhead of a TPU's runtime and of its links to the host is not measured.

While requests stream, each call also reads the progress of every request.
"""

from collections.abc import Sequence
import pathlib
import statistics
import time
import types
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from saxml_ext.aot.report.compiled import costs
from saxml_ext.aot.report.compiled import engine_programs
from saxml_ext.common import program
from saxml_ext.engine import executables
from saxml_ext.engine import program_keys
from saxml_ext.engine import sharding
from saxml_ext.engine.search import requests as requests_lib
from saxml_ext.engine.search import streams
from saxml_ext.engine.search import trace as trace_lib

_DATA = pathlib.Path(__file__).parent / 'data' / 'engine.json'
_CALLS = 1000
_TOKENS = 128


def main(argv: Sequence[str]) -> None:
  del argv
  described = costs.read(_DATA)
  jax.config.update('jax_platforms', 'cpu')
  jax.config.update('jax_num_cpu_devices', int(np.prod(described.mesh)))
  mesh = sharding.make_mesh(described.mesh)
  run = engine_programs.of(described)
  for key in (program_keys.Decode(described.slots), program_keys.Hypotheses()):
    signature = run.signature(key)
    count = len(jax.tree.leaves(signature.args))
    least, median = (1e3 * s for s in seconds(signature, mesh))
    print(f'{key}, {count} arguments: {least:.2f} ms, median {median:.2f} ms')
  least, median = (1e6 * s for s in message_seconds())
  print(f'a message of a stream: {least:.0f} us, median {median:.0f} us')


def seconds(
  signature: executables.Signature, mesh: jax.sharding.Mesh
) -> tuple[float, float]:
  """Returns the least and the median seconds of a call and of reading results.

  Args:
    signature: The arguments and results. Donated arguments are the first
      results.
    mesh: The devices.
  """
  place = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
  donated = signature.donated
  news = signature.results[len(donated) :]

  def function(*args):
    kept = [jax.tree.map(lambda x: x + 1, args[i]) for i in donated]
    return kept, [jnp.zeros(s.shape, s.dtype) for s in jax.tree.leaves(news)]

  def argument(struct):
    if isinstance(struct, jax.ShapeDtypeStruct):  # The host passes a new array.
      return np.zeros(struct.shape, struct.dtype)
    return jax.tree.map(lambda _: jax.device_put(0, place), struct)

  args = list(map(argument, signature.args))
  jitted = jax.jit(function, donate_argnums=donated, out_shardings=place)
  compiled = jitted.lower(*args).compile()
  found = []
  for _ in range(_CALLS):
    began = time.perf_counter()
    kept, made = compiled(*args)
    jax.device_get(made)
    found.append(time.perf_counter() - began)
    for i, value in zip(donated, kept):
      args[i] = value
  return min(found), statistics.median(found)


def message_seconds() -> tuple[float, float]:
  """Returns the least and the median seconds to read a step of one stream.

  The request is greedy. The messages are those of an answer of _TOKENS tokens,
  and each contains the tokens before it.
  """
  kept = trace_lib.Kept(*np.zeros((len(trace_lib.Kept._fields), 1, 1), int))
  tokens, parents, logprobs = np.zeros((3, 1, 2, 1))
  recent = trace_lib.Trace(tokens, parents, logprobs, None)
  request: Any = types.SimpleNamespace(logprobs=None)
  found = []
  stream = streams.Stream(1, sampled=True)
  for step in range(2, _TOKENS + 1):
    count = np.array([step])
    news = streams.News(count, recent, count - 2, kept, kept.present)
    began = time.perf_counter()
    stream.hear(jax.tree.map(lambda x: x[0], news))
    requests_lib.progress(request, stream)
    found.append(time.perf_counter() - began)
  return min(found), statistics.median(found)


if __name__ == '__main__':
  program.run(main)
