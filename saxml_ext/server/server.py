"""Runs a model server of a Sax cell.

    server --sax_root=/tmp/sax-root --sax_cell=/sax/test --port=10001

It joins the cell's admin server, even if that starts later or moves. It serves
the models that the admin server assigns to it. After SIGTERM, it refuses new
calls and answers those in flight. Then the program ends with 0. A second
signal, or the end of --drain_secs, ends it at once.

Several processes can be one model server. This requires the flags
--coordinator_address, --num_processes and --process_id on each host, or a group
of LeaderWorkerSet or a TPU slice. Process 0 joins the cell and serves, and the
others compute with it. See docs/multi_host.md.

If --sax_root and --sax_cell are not set, the environment variables SAX_ROOT and
SAX_CELL are used.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
import functools
import os
import random
import re
import sys
from typing import TypeAlias

from absl import flags
from absl import logging

from saxml_ext.common import cell
from saxml_ext.common import cell_flags
from saxml_ext.common import errors
from saxml_ext.common import flag_rules
from saxml_ext.common import ids
from saxml_ext.common import memory
from saxml_ext.common import program
from saxml_ext.common import user_path
from saxml_ext.common.machine import gpu_memory
from saxml_ext.common.security import access
from saxml_ext.common.security import access_flags
from saxml_ext.common.security import tls_flags  # noqa: F401 Registers flags.
from saxml_ext.common.telemetry import telemetry_flags
from saxml_ext.engine.parallel import cpu_collectives
from saxml_ext.groups import distributed
from saxml_ext.groups import formation
from saxml_ext.params import all_params  # noqa: F401 Registers them.
from saxml_ext.params import registry
from saxml_ext.protobuf import admin_pb2
from saxml_ext.server import jax_setup
from saxml_ext.server import membership
from saxml_ext.server import model_server
from saxml_ext.server import platforms
from saxml_ext.server import server_flags
from saxml_ext.server import serving
from saxml_ext.server.group import group_flags
from saxml_ext.server.group import group_follower
from saxml_ext.server.group import group_leader
from saxml_ext.server.lifecycle import entry as entry_lib
from saxml_ext.server.lifecycle import lifecycle
from saxml_ext.server.loading import loader
from saxml_ext.server.loading import memory_check
from saxml_ext.server.loading import servable
from saxml_ext.server.programs import program_flags

_LoadFn: TypeAlias = lifecycle.LoadFn[servable.Servable]

# The timeout for the processes of a group to find each other: JAX's default.
_GROUP_START_SECS = 300.0

_PORT = flags.DEFINE_integer(
  'port',
  None,
  'The TCP port to listen on; 0 picks a free port.',
  required=True,
  lower_bound=0,
  upper_bound=65535,
)
_SAX_CELL = flags.DEFINE_string(
  'sax_cell',
  None,
  'The cell to join, for example /sax/test. Default: $SAX_CELL. Without'
  ' either, or with --sax_cell=, the server only serves --models.',
)
_PLATFORM_CHIP = flags.DEFINE_string(
  'platform_chip',
  None,
  'The chip to report to the cell, such as tpuv5e, v5litepod-8 or a100.'
  ' Default: the chip that JAX uses.',
)
_PLATFORM_TOPOLOGY = flags.DEFINE_string(
  'platform_topology',
  None,
  'The topology to report to the cell, such as 1, 2x2 or 2x2x1. Default: the'
  ' topology of the chips that JAX uses.',
)
_TAGS = flags.DEFINE_list(
  'tags', [], 'The tags to report to the cell, for placement constraints.'
)
_MODEL_FILTER_REGEX = flags.DEFINE_string(
  'model_filter_regex',
  None,
  'A regular expression that the offered model paths match in full.',
)
_MODELS = flags.DEFINE_list(
  'models', [], 'The model paths to load at the start, without an admin server.'
)
_MODEL_KEYS = flags.DEFINE_list('model_keys', [], 'The model ids of --models.')
_CHECKPOINTS = flags.DEFINE_list(
  'checkpoints', [], 'The checkpoint paths of --models.'
)
_JAX_CACHE_DIR = flags.DEFINE_string(
  'jax_cache_dir',
  None,
  'The directory where compiled programs are kept for a faster next start.',
)
_DRAIN_SECS = flags.DEFINE_float(
  'drain_secs',
  60.0,
  'The seconds that calls in flight get to end after SIGTERM.',
  lower_bound=0,
)

flag_rules.act_only(
  'in a cell: --sax_cell or $SAX_CELL',
  lambda: _sax_cell(),
  'sax_root platform_chip platform_topology tags model_filter_regex admin_port',
)
flag_rules.act_only(
  'without --keep_statically_loaded_models',
  lambda: not server_flags.KEEP_STATIC.value,
  'model_filter_regex',
)
flag_rules.act_only(
  'with --models',
  lambda: _MODELS.value,
  'keep_statically_loaded_models model_config_overrides',
)
flag_rules.act_only(
  'on one host', lambda: group_flags.is_group() is not True, 'programs_cache'
)


def _servable_paths(known: Collection[str]) -> list[str]:
  """Returns the model paths to offer, in random order.

  When a server joins again, upstream's admin server compares the paths. If they
  had the same order, it would assume that a restarted server still has its
  models loaded.
  """
  if server_flags.KEEP_STATIC.value:
    return []  # The cell cannot load models here.
  pattern = _MODEL_FILTER_REGEX.value
  try:
    names = [
      name for name in known if pattern is None or re.fullmatch(pattern, name)
    ]
  except re.error as e:
    raise errors.InvalidArgument(
      f'--model_filter_regex={pattern} is not a valid regular expression: {e}'
    ) from e
  if pattern is not None and not names:
    logging.warning(
      '--model_filter_regex=%s matches none of the %d model paths of this'
      ' server in full (%s, ...). The server joins the cell, but no model can'
      ' be assigned to it.',
      pattern,
      len(known),
      ', '.join(sorted(known)[:3]),
    )
  random.shuffle(names)
  return names


def _static_specs() -> dict[str, entry_lib.Spec]:
  """Returns the models in the flags, by key."""
  lengths = {len(f.value) for f in (_MODELS, _MODEL_KEYS, _CHECKPOINTS)}
  if len(lengths) != 1:
    raise errors.InvalidArgument(
      f'--models, --model_keys and --checkpoints have {len(_MODELS.value)},'
      f' {len(_MODEL_KEYS.value)} and {len(_CHECKPOINTS.value)} entries. Pass'
      ' one of each per model.'
    )
  return {
    key: entry_lib.Spec(path, checkpoint, overrides, acls={})
    for path, key, checkpoint, overrides in zip(
      _MODELS.value,
      _MODEL_KEYS.value,
      _CHECKPOINTS.value,
      server_flags.overrides(len(_MODELS.value)),
    )
  }


def _server_spec(
  known: Collection[str], hosts: Sequence[str]
) -> admin_pb2.ModelServer:
  """Returns the description of this server and its hosts for the cell."""
  return admin_pb2.ModelServer(
    chip_type=platforms.chip_type(_PLATFORM_CHIP.value),
    chip_topology=platforms.chip_topology(_PLATFORM_TOPOLOGY.value),
    servable_model_paths=_servable_paths(known),
    tags=_TAGS.value,
    memory_bytes=platforms.memory_bytes(hosts),
    hosts=hosts,
  )


def _sax_cell() -> str:
  """Returns the cell to join; '' for none."""
  if _SAX_CELL.value is not None:
    return _SAX_CELL.value
  return cell.text_setting(None, cell.CELL_VARIABLE)


def _join_group(formed: formation.Formation) -> None:
  """Joins the processes of the group, before devices are used."""

  def give_up(reason: str) -> None:
    print(f'server: {reason}', file=sys.stderr, flush=True)
    os._exit(1)

  distributed.initialize(formed, _GROUP_START_SECS, give_up)
  cpu_collectives.listen_towards(formed.coordinator_address)
  distributed.check(formed)


async def _leave(sax_cell: str, address: str, reason: str) -> None:
  """Reports to the cell why the server at an address has ended."""
  if sax_cell:
    await membership.Membership(
      cell_flags.sax_root(), sax_cell, admin_pb2.JoinRequest(address=address)
    ).leave(reason)


def _serve(
  formed: formation.Formation | None,
  sax_cell: str,
  extend: Callable[[_LoadFn], _LoadFn],
  more_paths: Collection[str],
  prepare: group_leader.PrepareFn,
) -> None:
  """Serves until asked to stop, alone or as a process of a group."""
  known = [*registry.names(), *more_paths]
  static = _static_specs()
  _servable_paths(known)  # Checks the flag before a long wait.
  if formed is not None:
    _join_group(formed)
  jax_setup.check_devices()
  server_flags.start_profiler()
  memory.settle()
  limits = group_flags.limits()
  if formed is not None and not formed.leads:
    asyncio.run(
      group_follower.serve(
        formed,
        limits,
        _PORT.value,
        access_flags.host(),
        _DRAIN_SECS.value,
        prepare,
        functools.partial(_leave, sax_cell),
      )
    )
    return
  leader = loads = None
  load_fn: _LoadFn
  seed = server_flags.seed()
  if formed is not None:
    leader = group_leader.GroupLeader(
      formed, limits, group_flags.PORT.value, prepare, seed
    )
    load_fn = leader.load
  else:
    loads = memory_check.Loads(
      functools.partial(loader.load, programs=program_flags.sets(), seed=seed)
    )
    load_fn = extend(loads.load)

  def has_room(spec: entry_lib.Spec) -> bool:
    # The other hosts of a group, and paxml, do not report the memory that they
    # need.
    if loads is None or spec.model_path in more_paths:
      return False
    return loads.beside(spec)

  new_server = functools.partial(
    model_server.ModelServer,
    load_fn,
    _PORT.value,
    access_flags.host(),
    has_room=has_room,
    early_reject=server_flags.EARLY_REJECT.value,
    keep_static=server_flags.KEEP_STATIC.value,
  )
  asyncio.run(
    serving.serve(
      new_server,
      static,
      sax_root=cell_flags.sax_root() if sax_cell else '',
      sax_cell=sax_cell,
      server_spec=_server_spec(known, leader.hosts if leader else ()),
      drain_secs=_DRAIN_SECS.value,
      leader=leader,
      admin_port=server_flags.ADMIN_PORT.value,
      host=access_flags.host(),
    )
  )


def main(
  argv: Sequence[str],
  extend: Callable[[_LoadFn], _LoadFn] = lambda load_fn: load_fn,
  more_paths: Collection[str] = (),
  prepare: group_leader.PrepareFn | None = None,
) -> None:
  """Serves until the program is asked to stop.

  Args:
    argv: The program's name; further arguments are a usage error.
    extend: A function that wraps the load function of the flags, so that
      another program can also serve other engines. It is only used on one host.
    more_paths: The model paths that the wrapped function loads in addition to
      the registered ones.
    prepare: A function that prepares models in a process of a group; None
      prepares them as the flags require.
  """
  del argv
  if not flags.FLAGS['verbosity'].present:
    logging.set_verbosity(logging.INFO)
  telemetry_flags.start('sax-model-server')
  status = 0
  try:
    gpu_memory.apply()
    jax_setup.configure(user_path.resolve(_JAX_CACHE_DIR.value))
    formed = group_flags.find()
    if formed is not None and more_paths:
      raise errors.Unimplemented(
        'Pax experiments run on one host. Start this server with --group=none,'
        ' or start //saxml_ext/server:server on the hosts of the group.'
      )
    sax_cell = _sax_cell()
    sax_root = ''
    if sax_cell:
      ids.parse_cell_id(sax_cell)
      sax_root = cell_flags.sax_root()
    access.use(access_flags.open_access(sax_root, sax_cell))
    server_flags.configure_load_roots()
    if prepare is None:
      prepare = functools.partial(loader.prepare, programs=program_flags.sets())
    _serve(formed, sax_cell, extend, more_paths, prepare)
  except errors.SaxError as e:
    print(f'server: {e.message}', file=sys.stderr)
    status = 1
  # The program exits at once. A load that cannot be interrupted may still run
  # on its thread, and JAX would wait for the other processes of a group.
  sys.stdout.flush()
  sys.stderr.flush()
  os._exit(status)


if __name__ == '__main__':
  program.run(main)
