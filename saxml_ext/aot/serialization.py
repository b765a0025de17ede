"""Compiled programs as bytes, and back.

JAX's own `serialize_executable` pickles: unpickling runs what the bytes say,
and the bytes differ from place to place. Here the bytes are the device
runtime's alone, and all that JAX must know besides is given again by who loads
them. JAX's private interfaces are used here and in `engine/parallel/
cpu_collectives.py` alone; they are those of jax 0.10.
"""

from collections.abc import Collection
from typing import Any, NamedTuple

import jax
from jax._src import core
from jax._src import stages
from jax._src.interpreters import pxla
from jax._src.lib import xla_client
import numpy as np

from saxml_ext.engine import executables


class Serialized(NamedTuple):
  """A compiled program.

  executable: the runtime's bytes; dropped: which arguments, counted through all
  their leaves, it does not use and is not given.
  """

  executable: bytes
  dropped: tuple[int, ...]


def serialize(compiled: jax.stages.Compiled) -> Serialized:
  """The bytes of a program, which may be one for devices that are not here.

  Raises:
    ValueError: it needs arrays that are neither arguments nor in its bytes.
  """
  if compiled._params.const_args:
    raise ValueError(
      f'the program closes over {len(compiled._params.const_args)} arrays,'
      ' which its bytes do not have; pass them as arguments'
    )
  kept = compiled._executable._kept_var_idx
  count = compiled.in_tree.num_leaves
  return Serialized(
    compiled.runtime_executable().serialize(),
    tuple(i for i in range(count) if i not in kept),
  )


def load(
  serialized: Serialized,
  signature: executables.Signature,
  name: str,
) -> jax.stages.Compiled:
  """A program that can be called, on the devices of its signature.

  Without shardings in the signature that is JAX's default device. The functions
  of `engine/kernels` that it calls must have been registered.

  Args:
    serialized: of `serialize`.
    signature: as of the `Executables` that compiled it.
    name: of the program, for errors and profiles.

  Raises:
    jax.errors.JaxRuntimeError: the bytes are none of this runtime's, or for
      other devices.
  """
  args, in_tree = jax.tree.flatten((signature.args, {}))
  results, out_tree = jax.tree.flatten(signature.results)
  kept = [i for i in range(len(args)) if i not in set(serialized.dropped)]
  single = jax.sharding.SingleDeviceSharding(jax.devices()[0])
  in_shardings = [args[i].sharding or single for i in kept]
  out_shardings = [x.sharding or single for x in results]
  devices = xla_client.DeviceList(_devices(in_shardings + out_shardings))
  client = devices[0].client
  unloaded = pxla.UnloadedMeshExecutable(
    xla_executable=client.deserialize_executable(
      serialized.executable, devices, _options(devices)
    ),
    device_list=devices,
    backend=client,
    input_avals=[_aval(args[i]) for i in kept],
    input_shardings=in_shardings,
    output_avals=[_aval(x) for x in results],
    output_shardings=out_shardings,
    committed=single not in out_shardings,
    name=name,
    unordered_effects=[],
    ordered_effects=[],
    keepalive=[],
    host_callbacks=[],
    kept_var_idx=set(kept),
    mut=None,
    # Arrays have the device's own layouts: the programs ask for no others.
    xla_in_layouts=[None] * len(kept),
    dispatch_in_layouts=[None] * len(kept),
    xla_out_layouts=[None] * len(results),
    all_args_info=None,
    pgle_profiler=None,
  )
  donated = _donated(signature)
  info = [stages.ArgInfo(_aval(x), d) for x, d in zip(args, donated)]
  return stages.Compiled(
    unloaded.load(),
    [],
    jax.tree.unflatten(in_tree, info),
    out_tree,
    no_kwargs=True,
  )


def _options(
  devices: xla_client.DeviceList,
) -> xla_client.CompileOptions | None:
  """Names the devices to a CPU's runtime, which would take those of the bytes.

  Their numbers depend on the processes that have them: 0 to 3 are four CPUs of
  one process, which also compiles for groups, and two are 2048 and 2049 where
  they are those of a second process.
  """
  if devices[0].platform != 'cpu' or len(devices) == 1:
    return None
  ids = np.array([[device.id for device in devices]])
  options = xla_client.CompileOptions()
  options.num_partitions = len(devices)
  options.device_assignment = xla_client.DeviceAssignment.create(ids)
  options.executable_build_options.num_partitions = len(devices)
  options.executable_build_options.device_assignment = options.device_assignment
  options.executable_build_options.use_spmd_partitioning = True
  return options


def _devices(shardings: Collection[jax.sharding.Sharding]) -> tuple[Any, ...]:
  """The devices of a mesh in its order, or the only one."""
  first, *_ = shardings
  if isinstance(first, jax.sharding.NamedSharding):
    return tuple(first.mesh.devices.flat)
  return tuple(first.device_set)


def _donated(signature: executables.Signature) -> list[bool]:
  """Whether each leaf of the arguments may be overwritten."""
  return [
    i in signature.donated
    for i, arg in enumerate(signature.args)
    for _ in jax.tree.leaves(arg)
  ]


def _aval(x: jax.ShapeDtypeStruct) -> core.ShapedArray:
  return core.ShapedArray(x.shape, x.dtype)
