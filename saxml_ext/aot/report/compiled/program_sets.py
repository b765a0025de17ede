"""Costs of a program set that has been built, from the HLO that lies in it."""

import dataclasses
import gzip
import hashlib
import pathlib

from saxml_ext.aot import manifest as manifest_lib
from saxml_ext.aot.report.compiled import costs
from saxml_ext.aot.report.compiled import hlo_costs
from saxml_ext.aot.report.compiled import kernel_costs
from saxml_ext.aot.tpu import topologies


def read(directory: pathlib.Path) -> costs.Set:
  """Costs of the programs of a set.

  Args:
    directory: the set.

  Raises:
    OSError: a file cannot be read.
    ValueError: it is no set, or not one for a TPU slice that is known.
  """
  text = (directory / manifest_lib.NAME).read_text('utf-8')
  manifest = manifest_lib.loads(text)
  made_for = manifest.configuration
  programs = {}
  for program in manifest.programs:
    hlo = program.files.get(manifest_lib.OPTIMIZED_HLO)
    if hlo is None:
      raise ValueError(
        f'{directory} has no optimized HLO of {program.key!r}; estimates are of'
        ' sets for TPU, whose compiler says what it expects.'
      )
    memory = dataclasses.asdict(program.memory)
    packed = (directory / hlo.path).read_bytes()
    if hashlib.sha256(packed).hexdigest() != hlo.sha256:
      raise ValueError(
        f'{directory / hlo.path} is not what was built: its SHA-256 is another'
        ' than in the manifest. Build the set again.'
      )
    source = gzip.decompress(packed).decode('utf-8')
    programs[program.key] = hlo_costs.read(
      source, memory, kernel_costs.describe
    )
  numbers = {leaf.dtype for leaf in made_for.weights.values()}
  return costs.Set(
    title=made_for.serving.model_path,
    topology=_topology(made_for.target),
    slots=made_for.engine.num_slots,
    beams=made_for.engine.rows,
    kv=made_for.engine.kv_dtype,
    weights='int8' if 'int8' in numbers else 'bfloat16',
    model=dataclasses.asdict(made_for.model),
    compiler=', '.join(f'{k} {v}' for k, v in made_for.versions.items()),
    programs=programs,
    mesh=made_for.mesh,
  )


def _topology(target: manifest_lib.Target) -> str:
  bounds = (*target.bounds, *(1,) * (3 - len(target.bounds)))
  for name, topology in topologies.BY_NAME.items():
    if topology.chip.kind == target.kind and topology.shape == bounds:
      return name.replace('_', ' ')
  raise ValueError(
    f'the set is for {target.devices} x {target.kind} {target.bounds}; known'
    f' are {", ".join(topologies.BY_NAME)}.'
  )
