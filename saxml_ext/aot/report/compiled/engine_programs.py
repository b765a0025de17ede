"""The engine's programs that a file of costs describes.

They are lowered for TPU without libtpu, in less than a second each: only XLA's
compiler needs it. So a test can tell whether kept costs are those of the
engine's programs.
"""

from collections.abc import Sequence
import dataclasses
import hashlib
import re

import jax

from saxml_ext.aot.report.compiled import costs
from saxml_ext.aot.tpu import topologies
from saxml_ext.engine import abstract_weights
from saxml_ext.engine import config as config_lib
from saxml_ext.engine import executables
from saxml_ext.engine import logical
from saxml_ext.engine import sharding
from saxml_ext.engine import state

# A table of constants, such as the rotary embedding's sines.
_TABLE = re.compile(r'dense<"0x[0-9A-F]+">')


class _Static(config_lib.EngineConfig):
  """All slots begin together: one suffix block holds whole answers."""

  @property
  def num_suffix_blocks(self) -> int:
    return 1


def of(
  described: costs.Set, devices: Sequence[jax.Device] | None = None
) -> executables.Executables:
  """Returns the programs of a set, none of them compiled.

  Args:
    described: The set. Only the keys of its programs are read, not their costs.
    devices: The devices to compile for; None: an abstract mesh of such devices,
      for which programs can be lowered.

  Raises:
    ValueError: The mesh does not divide the model.
  """
  rows, buckets = (tuple(sorted({*n})) for n in zip(*described.prefills))
  kind = _Static if described.static else config_lib.EngineConfig
  engine = config_lib.tiled(
    kind(
      eos_id=50256,
      num_slots=described.slots,
      num_beams=described.beams,
      max_prompt=buckets[-1],
      prompt_buckets=buckets,
      prefill_batches=tuple(n // described.parts for n in rows),
      kv_dtype=described.kv,
    )
  )
  if described.static:
    engine = dataclasses.replace(engine, suffix_block=engine.max_new_tokens)
  model = config_lib.ModelConfig(**described.model)
  mesh = (
    _abstract_mesh(described)
    if devices is None
    else sharding.make_mesh(described.mesh, devices)
  )
  sharding.check(mesh, model, engine.num_slots)
  numbers = None if described.weights == 'bfloat16' else described.weights
  weights = abstract_weights.stacked(model, 'bfloat16', numbers)
  weights = jax.eval_shape(lambda w: sharding.pad(mesh, w), weights)
  return executables.Executables(state.Settings(model, engine), weights, mesh)


def lowered(described: costs.Set, program: str) -> str:
  """Returns the StableHLO of a program for TPU, without locations.

  Args:
    described: The set, on whose abstract mesh the program is lowered.
    program: The key of the program.
  """
  run = of(described)
  (key,) = [key for key in run.keys() if str(key) == program]
  # Locations are part of the kernels' code, which is part of the text.
  jax.config.update('jax_traceback_in_locations_limit', 0)
  with jax.sharding.use_abstract_mesh(run.mesh):
    traced = run.jitted(key).trace(*run.signature(key).args)
    return traced.lower(lowering_platforms=('tpu',)).as_text()


def fingerprint(described: costs.Set, program: str) -> str:
  """Returns the SHA-256 of `lowered` without the values of its tables.

  It depends on the version of JAX. The values do not change a program's cost,
  and NumPy computes sines with other last bits on processors with AVX-512.
  """
  text = _TABLE.sub('dense<>', lowered(described, program))
  return hashlib.sha256(text.encode()).hexdigest()


def _abstract_mesh(described: costs.Set) -> jax.sharding.AbstractMesh:
  topology = topologies.find(described.topology)
  return jax.sharding.AbstractMesh(
    described.mesh,
    logical.MESH_AXES,
    (jax.sharding.AxisType.Auto,) * len(logical.MESH_AXES),
    abstract_device=jax.sharding.AbstractDevice(
      topology.chip.kind, num_cores=1, platform='tpu'
    ),
  )
