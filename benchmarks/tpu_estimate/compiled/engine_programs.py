"""Lowers the engine's programs that a file of costs describes.

Only XLA's compiler needs libtpu. The programs are lowered for TPU without it,
each in less than a second. A test can therefore check that stored costs belong
to the engine's current programs.
"""

from collections.abc import Sequence
import dataclasses
import hashlib
import re

import jax

from benchmarks.tpu_estimate.compiled import costs
from saxml_ext.aot import abstract_model
from saxml_ext.aot.tpu import topologies
from saxml_ext.engine import abstract_weights
from saxml_ext.engine import config as config_lib
from saxml_ext.engine import executables
from saxml_ext.engine import logical
from saxml_ext.engine import platform_configs
from saxml_ext.engine import sharding
from saxml_ext.engine import state
from saxml_ext.params import all_params  # noqa: F401 Registers them.
from saxml_ext.params import settings as settings_lib

# Matches a table of constants, such as the sines of the rotary embedding.
_TABLE = re.compile(r'dense<"0x[0-9A-F]+">')
# Matches the name of a result, which consists of the names of fields.
_RESULT_NAME = re.compile(r'(?<=jax\.result_info = ")[^"]*')


class _Static(config_lib.EngineConfig):
  """Settings for slots that start together: one suffix block per answer."""

  @property
  def num_suffix_blocks(self) -> int:
    return 1


def build(
  described: costs.Set, devices: Sequence[jax.Device] | None = None
) -> executables.Executables:
  """Returns the programs of a set, before they are compiled.

  Args:
    described: The set. Only the keys of its programs are read, not their costs.
    devices: The devices to compile for. None selects an abstract mesh of the
      set's topology, which is enough to lower programs.

  Raises:
    ValueError: The mesh does not divide the model.
    errors.InvalidArgument: The serving params of the set cannot be used.
  """
  if described.params:
    placement = devices or _abstract_mesh(described)
    return abstract_model.from_params(
      described.params, {}, placement
    ).executables()
  rows, buckets = (tuple(sorted({*n})) for n in zip(*described.prefills))
  kind = _Static if described.static else config_lib.EngineConfig
  engine = platform_configs.tiled(
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
  weights = abstract_weights.shapes(model, 'bfloat16', numbers, stacked=True)
  weights = jax.eval_shape(lambda w: sharding.pad(mesh, w), weights)
  return executables.Executables(state.Settings(model, engine), weights, mesh)


def from_params(params: str, title: str, topology: str) -> costs.Set:
  """Returns the set of serving params, whose programs have no costs yet.

  Args:
    params: The registered name of the params.
    title: The title of the set.
    topology: The name of the chips, whose number the mesh of the params has.

  Raises:
    errors.InvalidArgument: The params cannot be used.
  """
  settings = settings_lib.published(params, {})
  engine = settings.engine
  keys = [f'decode {engine.num_slots}']
  for rows in engine.prefill_batches:
    keys += [f'prefill_and_insert {rows} 0 {n}' for n in engine.buckets]
  return costs.Set(
    title=title,
    topology=topology,
    slots=engine.num_slots,
    beams=engine.rows,
    kv=engine.kv_dtype,
    weights=settings.quantization or settings.dtype,
    model=dataclasses.asdict(settings.model_config()),
    compiler='',
    programs=dict.fromkeys(keys, costs.UNKNOWN),
    mesh=settings.mesh_shape,
    params=params,
  )


def lowered(described: costs.Set, program: str) -> str:
  """Returns the StableHLO of a program for TPU, without locations.

  Args:
    described: The set. The program is lowered on its abstract mesh.
    program: The key of the program.
  """
  run = build(described)
  (key,) = [key for key in run.keys() if str(key) == program]
  # Locations are part of the kernels' code, and so of the text.
  jax.config.update('jax_traceback_in_locations_limit', 0)
  with jax.sharding.use_abstract_mesh(run.mesh):
    traced = run.jitted(key).trace(*run.signature(key).args)
    return traced.lower(lowering_platforms=('tpu',)).as_text()


def fingerprint(described: costs.Set, program: str) -> str:
  """Returns the SHA-256 of `lowered` without tables and names of results.

  The hash depends on the version of JAX. The values are removed because NumPy
  computes sines with different last bits on processors with AVX-512. They do
  not change the cost of a program, and neither do names.
  """
  text = _TABLE.sub('dense<>', lowered(described, program))
  text = _RESULT_NAME.sub('', text)
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
