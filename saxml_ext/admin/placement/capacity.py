"""Memory of servers and needs of models, as the assigner is told of them.

A model says in its overrides what it needs: `ram` is bytes, `constraints` is a
list of tags, joined with commas, that a server must have. There are two ways to
look at that:

* as told (the default): a server's memory is what it tells when it joins,
  nothing but `ram` counts, and who was published first is served first;
* by chip, as stock Sax does with --sax_admin_exp_assigner: memory and needs are
  those of a core, and what a core has is known by the kind of chip; `ramN` is
  the need on servers of N cores, where the parts of a model are smaller;
  constraints count; who needs most is served first.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import math
import re

from saxml_ext.admin.placement import assigner
from saxml_ext.protobuf import admin_pb2

_GIB = 2**30
_Chip = admin_pb2.ModelServer.ChipType
_Topology = admin_pb2.ModelServer.ChipTopology
_GIB_PER_CORE = {
  _Chip.CHIP_TYPE_UNKNOWN: 8,
  _Chip.CHIP_TYPE_TPU_V2: 8,
  _Chip.CHIP_TYPE_TPU_V3: 16,
  _Chip.CHIP_TYPE_TPU_V4: 16,
  _Chip.CHIP_TYPE_TPU_V4I: 8,
  _Chip.CHIP_TYPE_TPU_V5E: 16,
  _Chip.CHIP_TYPE_TPU_V6E: 32,
  _Chip.CHIP_TYPE_GPU_P100: 16,
  _Chip.CHIP_TYPE_GPU_V100: 16,
  _Chip.CHIP_TYPE_GPU_T4: 16,
  _Chip.CHIP_TYPE_GPU_A100: 40,
  _Chip.CHIP_TYPE_GPU_H100: 80,
  _Chip.CHIP_TYPE_GPU_L4: 24,
}
_GIB_PER_OTHER_CORE = 64
_RAM = re.compile(r'ram(-?\d+)?')
_BYTES = re.compile(r'-?\d+')
_CONSTRAINTS = 'constraints'
_DIMS = re.compile(r'CHIP_TOPOLOGY_(\d+(?:X\d+)*)')


def needs(overrides: Mapping[str, str]) -> dict[int, int]:
  """Bytes per core that a model needs, by the number of a server's cores.

  Entries that are no whole numbers count for nothing. 1 stands for all numbers
  of cores that have no entry of their own.
  """
  found = {}
  for key, text in overrides.items():
    match = _RAM.fullmatch(key)
    if match and _BYTES.fullmatch(text):
      found[int(match[1] or 1)] = int(text)
  return found


def constraints(overrides: Mapping[str, str]) -> tuple[str, ...] | None:
  """Tags that a model wants of a server, as they are written; or None."""
  text = overrides.get(_CONSTRAINTS)
  return None if text is None else tuple(text.split(','))


def bytes_per_core(server: admin_pb2.ModelServer) -> int:
  """Memory of each core of a server."""
  return _GIB * _GIB_PER_CORE.get(server.chip_type, _GIB_PER_OTHER_CORE)


def cores(server: admin_pb2.ModelServer) -> int:
  """How many cores a server has; 1 if that is not known."""
  if server.chip_topology not in _Topology.values():
    return 1
  match = _DIMS.fullmatch(_Topology.Name(server.chip_topology))
  return math.prod(map(int, match[1].split('X'))) if match else 1


def model(
  published: admin_pb2.Model, may_retry: bool, by_chip: bool
) -> assigner.Model:
  """What the assigner needs to know of a published model."""
  by_cores = needs(published.overrides)
  need = by_cores.get(1)
  return assigner.Model(
    published.model_id,
    published.model_path,
    published.requested_num_replicas,
    None if need is None or need < 0 else need,
    may_retry,
    by_cores if by_chip else {},
    (constraints(published.overrides) or ()) if by_chip else (),
  )


def server(
  spec: admin_pb2.ModelServer, known: assigner.Server, by_chip: bool
) -> assigner.Server:
  """Fills in what a model server's specs tell of its size."""
  if not by_chip:
    return dataclasses.replace(known, memory=spec.memory_bytes or None)
  return dataclasses.replace(
    known,
    memory=bytes_per_core(spec),
    cores=cores(spec),
    tags=frozenset(spec.tags),
  )


def in_order(
  models: Sequence[assigner.Model], by_chip: bool
) -> Sequence[assigner.Model]:
  """The order in which models are served, given that of publication."""
  if not by_chip:
    return models
  # Who says nothing needs a whole server.
  return sorted(
    models, key=lambda m: (-math.inf if m.need is None else -m.need, m.model_id)
  )
