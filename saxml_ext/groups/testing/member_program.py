"""Joins a job of jax.distributed and exchanges an address in its store."""

from collections.abc import Sequence
import os

from absl import flags
import jax
import numpy as np

from saxml_ext.common import program
from saxml_ext.groups import distributed
from saxml_ext.groups import formation
from saxml_ext.groups import leader_address

_COORDINATOR = flags.DEFINE_string(
  'coordinator', None, 'The HOST:PORT of process 0.'
)
_SIZE = flags.DEFINE_integer('size', 2, 'The number of processes.')
_NUMBER = flags.DEFINE_integer('number', 0, 'The number of this process.')
_PATIENCE = flags.DEFINE_float('patience', 100.0, 'The timeout in seconds.')
_CACHE_DIR = flags.DEFINE_string(
  'cache_dir',
  None,
  'The directory where a compiled program is kept for the next start.',
)


def _main(argv: Sequence[str]) -> None:
  del argv

  def give_up(reason: str) -> None:
    _end(reason, 1)

  jax.config.update('jax_compilation_cache_dir', _CACHE_DIR.value)
  jax.config.update('jax_persistent_cache_min_compile_time_secs', 0.0)
  formed = formation.Formation(_COORDINATOR.value, _SIZE.value, _NUMBER.value)
  distributed.initialize(formed, _PATIENCE.value, give_up)
  distributed.check(formed)
  shared = distributed.key_value_store()
  found_in_cache = _compile() if _CACHE_DIR.value else 0
  if formed.leads:
    leader_address.announce(
      shared, leader_address.Announcement('a:1', 'epoch', 'a')
    )
    shared.get('read', _PATIENCE.value)
    _leave(f'told {found_in_cache}')
  leader = leader_address.find(shared, _PATIENCE.value)
  try:
    shared.get('nothing', 0.1)
  except TimeoutError:
    shared.set('read', 'yes')
    _leave(f'{leader.address} {leader.epoch} {leader.name} {found_in_cache}')


def _compile() -> int:
  """Compiles a program for all devices; returns the number of cache hits."""
  hits: list[str] = []
  jax.monitoring.register_event_listener(
    lambda event, **_: hits.append(event) if 'cache_hits' in event else None
  )
  mesh = jax.make_mesh((_SIZE.value,), ('all',))
  spec = jax.sharding.PartitionSpec
  whole = jax.sharding.NamedSharding(mesh, spec())
  split = jax.ShapeDtypeStruct(
    (_SIZE.value,),
    np.float32,
    sharding=jax.sharding.NamedSharding(mesh, spec('all')),
  )
  jax.jit(lambda x: x.sum(), out_shardings=whole).lower(split).compile()
  return len(hits)


def _leave(text: str) -> None:
  """Ends with all processes, because the store ends with the leader."""
  jax.distributed.shutdown()
  _end(text, 0)


def _end(text: str, code: int) -> None:
  print(text, flush=True)
  os._exit(code)


if __name__ == '__main__':
  program.run(_main)
