"""Computes the memory of servers and the needs of models, for the assigner.

The overrides of a model contain its needs: `ram` is a number of bytes, and
`constraints` is a list of tags, joined with commas, that a server must have.
There are two modes:

- By default, a server's memory is the number that it announces when it joins.
  Only `ram` counts, and the model that was published first is assigned first.
- By chip, as in stock Sax with --sax_admin_exp_assigner, memory and needs are
  per core. The kind of chip determines the memory of a core. `ramN` is the need
  on servers with N cores, where the parts of a model are smaller. Constraints
  count, and the model with the largest need is assigned first.
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
  _Chip.CHIP_TYPE_GPU_H200: 140,
  _Chip.CHIP_TYPE_GPU_L4: 24,
}
_GIB_PER_OTHER_CORE = 64
_RAM = re.compile(r'ram(-?\d+)?')
_BYTES = re.compile(r'-?\d+')
_CONSTRAINTS = 'constraints'
_DIMS = re.compile(r'CHIP_TOPOLOGY_(\d+(?:X\d+)*)')


def needs(overrides: Mapping[str, str]) -> dict[int, int]:
  """Returns the bytes per core that a model needs, by the number of cores.

  Entries that are not whole numbers are ignored. The entry for 1 applies to all
  numbers of cores without an entry.
  """
  result = {}
  for key, text in overrides.items():
    match = _RAM.fullmatch(key)
    if match and _BYTES.fullmatch(text):
      result[int(match[1] or 1)] = int(text)
  return result


def constraints(overrides: Mapping[str, str]) -> tuple[str, ...] | None:
  """Returns the tags that a model requires, unchanged, or None."""
  text = overrides.get(_CONSTRAINTS)
  return None if text is None else tuple(text.split(','))


def bytes_per_core(server: admin_pb2.ModelServer) -> int:
  """Returns the memory of each core of a server."""
  return _GIB * _GIB_PER_CORE.get(server.chip_type, _GIB_PER_OTHER_CORE)


def cores(server: admin_pb2.ModelServer) -> int:
  """Returns the number of cores of a server; 1 if unknown."""
  if server.chip_topology not in _Topology.values():
    return 1
  match = _DIMS.fullmatch(_Topology.Name(server.chip_topology))
  return math.prod(map(int, match[1].split('X'))) if match else 1


def model(
  published: admin_pb2.Model, may_retry: bool, by_chip: bool
) -> assigner.Model:
  """Converts a published model for the assigner."""
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
  """Adds the size in a model server's specs to its entry for the assigner."""
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
  """Sorts models, given in the order of publication, for assignment."""
  if not by_chip:
    return models
  # A model without a number needs a whole server.
  return sorted(
    models, key=lambda m: (-math.inf if m.need is None else -m.need, m.model_id)
  )
