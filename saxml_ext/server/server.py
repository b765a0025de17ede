"""Runs a model server of a Sax cell.

    server --sax_root=/tmp/sax-root --sax_cell=/sax/test --port=10001

It joins the cell's admin server, wherever and whenever that is, and serves the
models that it is told to load. SIGTERM drains: calls in flight are answered,
new ones are refused, then the program ends with 0. A second signal, or the end
of --drain_secs, ends it at once.

The environment variables SAX_ROOT and SAX_CELL stand in for --sax_root and
--sax_cell where these are not given.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
import functools
import os
import random
import re
import signal
import sys
from typing import TypeAlias

from absl import app
from absl import flags
from absl import logging

from saxml_ext.common import cell
from saxml_ext.common import environment
from saxml_ext.common import errors
from saxml_ext.common import ids
from saxml_ext.common import net
from saxml_ext.common import user_path
from saxml_ext.params import gptj  # noqa: F401 Registers or sets up.
from saxml_ext.params import lm_cloud  # noqa: F401 Registers or sets up.
from saxml_ext.params import registry
from saxml_ext.protobuf import admin_pb2
from saxml_ext.server import jax_setup
from saxml_ext.server import membership
from saxml_ext.server import model_server
from saxml_ext.server import platforms
from saxml_ext.server.loading import lifecycle
from saxml_ext.server.loading import loader
from saxml_ext.server.loading import servable
from saxml_ext.server.loading import spec
from saxml_ext.server.programs import program_flags

_LoadFn: TypeAlias = lifecycle.LoadFn[servable.Servable]

_PORT = flags.DEFINE_integer(
  'port',
  None,
  'TCP port to listen on; 0 picks a free one.',
  required=True,
  lower_bound=0,
  upper_bound=65535,
)
_SAX_CELL = flags.DEFINE_string(
  'sax_cell',
  None,
  'The cell to join, for example /sax/test. Default: $SAX_CELL; without'
  ' either, or with --sax_cell= it joins none and serves --models only.',
)
_SAX_ROOT = flags.DEFINE_string(
  'sax_root',
  None,
  "Directory with the cells' configs and locations. Default: $SAX_ROOT.",
)
_PLATFORM_CHIP = flags.DEFINE_string(
  'platform_chip',
  None,
  'Chip that the cell is told of, such as tpuv5e, v5litepod-8 or a100. Default:'
  ' that which JAX computes on.',
)
_PLATFORM_TOPOLOGY = flags.DEFINE_string(
  'platform_topology',
  None,
  'Topology that the cell is told of, such as 1, 2x2 or 2x2x1. Default: that'
  ' of the chips that JAX computes on.',
)
_TAGS = flags.DEFINE_list(
  'tags', [], 'Tags that the cell is told of, for placement constraints.'
)
_MODEL_FILTER_REGEX = flags.DEFINE_string(
  'model_filter_regex',
  None,
  'Offer the cell only model paths that match this from start to end.',
)
_MODELS = flags.DEFINE_list(
  'models', [], 'Model paths to load at start, without an admin server.'
)
_MODEL_KEYS = flags.DEFINE_list('model_keys', [], 'Model ids of --models.')
_CHECKPOINTS = flags.DEFINE_list(
  'checkpoints', [], 'Checkpoint paths of --models.'
)
_JAX_CACHE_DIR = flags.DEFINE_string(
  'jax_cache_dir',
  None,
  'Directory to keep compiled programs in, for a faster next start.',
)
_DRAIN_SECS = flags.DEFINE_float(
  'drain_secs',
  60.0,
  'Seconds that SIGTERM gives calls in flight.',
  lower_bound=0,
)


def _load_fn() -> _LoadFn:
  """Loads models, with the programs that the flags name."""
  return functools.partial(loader.load, programs=program_flags.sets())


def _servable_paths(known: Collection[str]) -> list[str]:
  """Model paths to offer, in an order that differs from start to start.

  An admin server of upstream's compares them when a server joins again: it
  takes a restarted server for the old one, with its models loaded, if they
  come in the same order.
  """
  pattern = _MODEL_FILTER_REGEX.value
  try:
    names = [
      name for name in known if pattern is None or re.fullmatch(pattern, name)
    ]
  except re.error as e:
    raise errors.InvalidArgument(
      f'--model_filter_regex={pattern} is no regular expression: {e}'
    ) from e
  if pattern is not None and not names:
    logging.warning(
      '--model_filter_regex=%s matches, from start to end, none of the %d model'
      ' paths that this server knows (%s, ...): it joins, but no model can be'
      ' assigned to it',
      pattern,
      len(known),
      ', '.join(sorted(known)[:3]),
    )
  random.shuffle(names)
  return names


def _static_specs() -> dict[str, spec.Spec]:
  """Models given by flags, by key."""
  lengths = {len(f.value) for f in (_MODELS, _MODEL_KEYS, _CHECKPOINTS)}
  if len(lengths) != 1:
    raise errors.InvalidArgument(
      f'--models, --model_keys and --checkpoints have {len(_MODELS.value)},'
      f' {len(_MODEL_KEYS.value)} and {len(_CHECKPOINTS.value)} entries;'
      ' give one of each per model'
    )
  return {
    key: spec.Spec(path, checkpoint, overrides={}, acls={})
    for path, key, checkpoint in zip(
      _MODELS.value, _MODEL_KEYS.value, _CHECKPOINTS.value
    )
  }


def _server_spec(known: Collection[str]) -> admin_pb2.ModelServer:
  """What the cell is told of this server."""
  return admin_pb2.ModelServer(
    chip_type=platforms.chip_type(_PLATFORM_CHIP.value),
    chip_topology=platforms.chip_topology(_PLATFORM_TOPOLOGY.value),
    servable_model_paths=_servable_paths(known),
    tags=_TAGS.value,
    memory_bytes=platforms.memory_bytes(),
  )


def _sax_cell() -> str:
  """The cell to join; '' for none."""
  if _SAX_CELL.value is not None:
    return _SAX_CELL.value
  return environment.text(None, environment.CELL)


def _first_signal() -> asyncio.Event:
  """An event set by SIGTERM or Ctrl-C; the second one ends the process."""
  told = asyncio.Event()

  def on_signal() -> None:
    if told.is_set():
      logging.warning('told twice to stop; ending at once')
      os._exit(1)
    told.set()

  for number in (signal.SIGTERM, signal.SIGINT):
    asyncio.get_running_loop().add_signal_handler(number, on_signal)
  return told


async def _serve(
  load_fn: _LoadFn,
  sax_cell: str,
  server_spec: admin_pb2.ModelServer,
  static: dict[str, spec.Spec],
) -> None:
  """Serves until a signal, or until a static model fails to load."""
  told = _first_signal()
  server = model_server.ModelServer(load_fn, _PORT.value)
  join = admin_pb2.JoinRequest(
    address=net.advertised_address(server.port), model_server=server_spec
  )
  await server.start()
  # A load may take minutes; the signal is not to wait for it.
  working = asyncio.create_task(_load_and_join(server, static, sax_cell, join))
  stopping = asyncio.create_task(told.wait())
  grace = 0.0
  try:
    await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
    if working.done():
      working.result()
    await stopping
    logging.info('stopping; calls in flight are answered first')
    grace = _DRAIN_SECS.value
  finally:
    working.cancel()
    stopping.cancel()
    await server.stop(grace)


async def _load_and_join(
  server: model_server.ModelServer,
  static: dict[str, spec.Spec],
  sax_cell: str,
  join: admin_pb2.JoinRequest,
) -> None:
  for key, each in static.items():
    await asyncio.wrap_future(server.models.load(key, each))
  print(f'Model server is serving at {join.address}', flush=True)
  if sax_cell:
    await membership.Membership(
      cell.sax_root(_SAX_ROOT.value), sax_cell, join
    ).run()


def main(
  argv: Sequence[str],
  extend: Callable[[_LoadFn], _LoadFn] = lambda load_fn: load_fn,
  more_paths: Collection[str] = (),
) -> None:
  """Serves until told to stop.

  Args:
    argv: the program's name; anything more is a usage error.
    extend: makes another function that loads models of the one that the flags
      ask for; another program may serve other engines besides.
    more_paths: model paths that it loads besides the registered ones.
  """
  if len(argv) > 1:
    raise app.UsageError(f'unknown arguments {" ".join(argv[1:])}')
  if not flags.FLAGS['verbosity'].present:
    logging.set_verbosity(logging.INFO)
  jax_setup.configure(user_path.resolve(_JAX_CACHE_DIR.value))
  try:
    jax_setup.check_devices()
    sax_cell = _sax_cell()
    if sax_cell:
      ids.parse_cell_id(sax_cell)
      cell.sax_root(_SAX_ROOT.value)
    known = [*registry.names(), *more_paths]
    load_fn = extend(_load_fn())
    asyncio.run(_serve(load_fn, sax_cell, _server_spec(known), _static_specs()))
  except errors.SaxError as e:
    sys.exit(f'server: {e.message}')
  # A load that cannot be interrupted may still run on its thread.
  sys.stdout.flush()
  sys.stderr.flush()
  os._exit(0)


if __name__ == '__main__':
  app.run(main)
