"""Measures the overhead of the log per call, with an engine that does nothing.

The followers are threads of this process, so their work is included. It would
be smaller if the followers were separate processes.
"""

from collections.abc import Callable, Sequence
import time

from absl import flags
import numpy as np

from saxml_ext.common import program
from saxml_ext.engine import request as request_lib
from saxml_ext.groups import group_engine
from saxml_ext.groups.testing import local_group
from saxml_ext.groups.testing import noting_runner
from saxml_ext.protobuf import modelet_pb2

_FOLLOWERS = flags.DEFINE_integer(
  'followers', 3, 'The number of followers of the group.'
)
_CALLS = flags.DEFINE_integer(
  'calls', 2000, 'The number of calls of each kind.'
)
_TOKENS = flags.DEFINE_integer(
  'tokens', 1024, 'The number of tokens of a prompt.'
)
_PAUSE_SECS = flags.DEFINE_float(
  'pause_secs',
  0.002,
  'The seconds between two calls, like the time that an engine takes.',
)


class _IdleRunner(noting_runner.NotingRunner):
  """An engine that does nothing."""

  def prefill_and_insert(self, requests):
    pass

  def step(self, max_steps=None):
    return {}


class _Prepared(noting_runner.NotingPrepared):
  def __init__(self, unused_request):
    super().__init__({})
    self.runner = _IdleRunner()


def _measure(name: str, call: Callable[[], object]) -> None:
  times = []
  for _ in range(_CALLS.value):
    time.sleep(_PAUSE_SECS.value)
    begin = time.perf_counter()
    call()
    times.append(time.perf_counter() - begin)
  p50, p99 = 1e3 * np.quantile(times, (0.5, 0.99))
  print(f'{name:8} p50 {p50:.3f} ms  p99 {p99:.3f} ms')


def _main(argv: Sequence[str]) -> None:
  del argv
  limits = group_engine.Limits(silence=30.0)
  group = local_group.LocalGroup([_Prepared] * (1 + _FOLLOWERS.value), limits)
  runner = group.leader.load(modelet_pb2.LoadRequest()).runner
  tokens = np.arange(_TOKENS.value, dtype=np.int32)
  requests = {0: request_lib.Request(tokens, max_new_tokens=128, top_p=0.9)}
  print(f'{_FOLLOWERS.value} followers, {_CALLS.value} calls of each kind')
  _measure('step', lambda: runner.step(8))
  _measure('admit', lambda: runner.prefill_and_insert(requests))
  group.leader.finish()


if __name__ == '__main__':
  program.run(_main)
