"""Measures the time of engine calls, controlled by stdin.

Each line of stdin is a number of rounds. The answer is a line of JSON with the
seconds of every call, {"prefill_and_insert": [...], "step": [...], "release":
[...]}. After the start, the program prints {}. Other lines come from libraries.
In a group that is driven by its log, only process 0 gets commands. If each
process drives its own engine, all of them must get the same commands.
"""

from collections.abc import Callable, Sequence
import json
import os
import sys
import time

from absl import flags
import numpy as np

from saxml_ext.common import program
from saxml_ext.engine import request as request_lib
from saxml_ext.engine.parallel import cpu_collectives
from saxml_ext.groups import distributed
from saxml_ext.groups import follower as follower_lib
from saxml_ext.groups import formation
from saxml_ext.groups import group_engine
from saxml_ext.groups import leader as leader_lib
from saxml_ext.groups import leader_address as store_lib
from saxml_ext.params import gptj  # noqa: F401 Registers or sets up.
from saxml_ext.protobuf import modelet_pb2
from saxml_ext.server import jax_setup
from saxml_ext.server.lifecycle import entry as entry_lib
from saxml_ext.server.loading import loader

_CHECKPOINT = flags.DEFINE_string(
  'checkpoint', None, 'PAX checkpoint.', required=True
)
_PARAMS = flags.DEFINE_string('params', None, 'Serving params.', required=True)
_OVERRIDES = flags.DEFINE_string(
  'overrides', '{}', 'The overrides of the params as JSON.'
)
_COORDINATOR = flags.DEFINE_string(
  'coordinator', None, '"host:port" of process 0. Default: a single process.'
)
_NUM_PROCESSES = flags.DEFINE_integer('num_processes', 1, 'Of the group.')
_PROCESS_ID = flags.DEFINE_integer('process_id', 0, 'Of this process.')
_LOG = flags.DEFINE_bool(
  'log', False, 'True if process 0 drives the others by its log.'
)
_JAX_CACHE_DIR = flags.DEFINE_string('jax_cache_dir', None, 'Programs.')

_HOST = 'this'
_SLOT = 0
_PROMPT = np.arange(100, 200, dtype=np.int32)
_STEPS = 4


def main(argv: Sequence[str]) -> None:
  del argv
  jax_setup.configure(_JAX_CACHE_DIR.value)
  if _COORDINATOR.value:
    formed = formation.Formation(
      _COORDINATOR.value, _NUM_PROCESSES.value, _PROCESS_ID.value
    )
    distributed.initialize(formed, group_engine.Limits.join, _end)
    cpu_collectives.listen_towards(formed.coordinator_address)
  if not _LOG.value:
    _answer(_prepare().start())
  elif _PROCESS_ID.value == 0:
    _lead()
  else:
    _follow()


def _prepare(request: modelet_pb2.LoadRequest | None = None):
  """Prepares the model of the flags; ignores the request in the log."""
  del request
  return loader.prepare(
    entry_lib.Spec(
      _PARAMS.value, _CHECKPOINT.value, json.loads(_OVERRIDES.value), acls={}
    )
  )


def _answer(runner: group_engine.Runner) -> None:
  """Makes rounds of calls until stdin is closed."""
  _rounds(runner, 2)  # Programs run slower the first time.
  print('{}', flush=True)
  for line in sys.stdin:
    print(json.dumps(_rounds(runner, int(line))), flush=True)


def _rounds(runner: group_engine.Runner, count: int) -> dict[str, list[float]]:
  """Returns the seconds of each call, by its name."""
  seconds: dict[str, list[float]] = {}

  def timed(name: str, call: Callable[[], object]) -> None:
    begin = time.perf_counter()
    call()
    seconds.setdefault(name, []).append(time.perf_counter() - begin)

  request = request_lib.Request(_PROMPT, seed=1)
  for _ in range(count):
    timed(
      'prefill_and_insert', lambda: runner.prefill_and_insert({_SLOT: request})
    )
    for _ in range(_STEPS):
      timed('step', lambda: runner.step(1))
    timed('release', lambda: runner.release(_SLOT))
  return seconds


def _lead() -> None:
  leader = leader_lib.Leader(
    _HOST,
    _NUM_PROCESSES.value,
    group_engine.Limits(),
    _prepare,
    on_end=_end,
    on_stopping=lambda host: None,
  )
  address = leader.listen('127.0.0.1', 0)
  store_lib.announce(
    distributed.key_value_store(),
    store_lib.Announcement(address, leader.epoch, _HOST),
  )
  leader.wait_for_followers()
  _answer(leader.load(modelet_pb2.LoadRequest()).runner)
  leader.finish()


def _follow() -> None:
  limits = group_engine.Limits()
  follower_lib.Follower(
    store_lib.find(distributed.key_value_store(), limits.join),
    group_engine.Host(_HOST, _PROCESS_ID.value),
    limits,
    _prepare,
    on_joined=lambda: None,
    on_end=lambda ended: _end(ended.reason),
  ).run()


def _end(reason: str) -> None:
  print(reason, file=sys.stderr, flush=True)
  os._exit(1)


if __name__ == '__main__':
  program.run(main)
