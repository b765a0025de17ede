"""Converts compiled programs to bytes and back: executables and StableHLO.

An executable works with one version of the device's runtime. JAX's own
`serialize_executable` uses pickle. Unpickling can run any code, and the bytes
differ between machines. Here the bytes come from the device's runtime only. The
caller that loads them passes everything else that JAX needs.

JAX's private interfaces are used only here and in
`engine/parallel/cpu_collectives.py`. They are those of jax 0.10.

Later versions of JAX can read StableHLO and compile the same program from it.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax
from jax import export
from jax._src import core
from jax._src import stages
from jax._src.interpreters import pxla
from jax._src.lib import xla_client
import numpy as np

from saxml_ext.engine import executables
from saxml_ext.engine import program_keys
from saxml_ext.engine.kernels import kernels

# The custom calls of `with_layout_constraint` and of Pallas kernels for GPUs. XLA
# supports them, but JAX does not guarantee that they stay compatible.
_NOT_GUARANTEED = ('LayoutConstraint', '__gpu$xla.gpu.triton')

# Fields of the format that XLA for CPU serializes, and the first bytes of an
# object file.
_RESULT = 1
_OBJECT_FILE = 8
_ELF = b'\x7fELF'
# Wire types of protocol buffers, and the sizes of those with a fixed size.
_VARINT, _DELIMITED = 0, 2
_FIXED = {1: 8, 5: 4}


class Serialized(NamedTuple):
  """A compiled program.

  Attributes:
    executable: The bytes of the runtime.
    dropped: The indices of the unused arguments, which callers leave out. The
      indices count the leaves of all arguments.
  """

  executable: bytes
  dropped: tuple[int, ...]


def serialize(compiled: jax.stages.Compiled) -> Serialized:
  """Returns the bytes of a program, even if its devices are not present.

  Raises:
    ValueError: The program needs arrays that are not arguments. Its bytes do
      not contain them.
  """
  if compiled._params.const_args:
    raise ValueError(
      f'the program closes over {len(compiled._params.const_args)} arrays,'
      ' which its bytes do not contain. Pass them as arguments.'
    )
  kept = compiled._executable._kept_var_idx
  count = compiled.in_tree.num_leaves
  return Serialized(
    compiled.runtime_executable().serialize(),
    tuple(i for i in range(count) if i not in kept),
  )


def load(
  serialized: Serialized, signature: executables.Signature, name: str
) -> jax.stages.Compiled:
  """Returns a callable program on the devices of its signature.

  If the signature has no shardings, JAX's default device is used. The functions
  of `engine/kernels` that the program calls must be registered before.

  Args:
    serialized: The result of `serialize`.
    signature: The signature from the `Executables` that compiled the program.
    name: The name of the program in errors and profiles.

  Raises:
    jax.errors.JaxRuntimeError: The bytes belong to another runtime or to other
      devices.
  """
  args, in_tree = jax.tree.flatten((signature.args, {}))
  results, out_tree = jax.tree.flatten(signature.results)
  kept = sorted(set(range(len(args))) - set(serialized.dropped))
  single = jax.sharding.SingleDeviceSharding(jax.devices()[0])
  in_shardings = [args[i].sharding or single for i in kept]
  out_shardings = [x.sharding or single for x in results]
  first, *_ = in_shardings + out_shardings
  devices = xla_client.DeviceList(
    tuple(first.mesh.devices.flat)  # These are in the mesh's order.
    if isinstance(first, jax.sharding.NamedSharding)
    else tuple(first.device_set)
  )
  client = devices[0].client
  unloaded = pxla.UnloadedMeshExecutable(
    xla_executable=client.deserialize_executable(
      serialized.executable, devices, _options(devices)
    ),
    device_list=devices,
    backend=client,
    input_avals=[_aval(args[i]) for i in kept],
    input_shardings=in_shardings,
    output_avals=list(map(_aval, results)),
    output_shardings=out_shardings,
    committed=single not in out_shardings,
    name=name,
    unordered_effects=[],
    ordered_effects=[],
    keepalive=[],
    host_callbacks=[],
    kept_var_idx=set(kept),
    mut=None,
    # The programs request no layouts, so all arrays have the device's own
    # layouts.
    xla_in_layouts=[None] * len(kept),
    dispatch_in_layouts=[None] * len(kept),
    xla_out_layouts=[None] * len(results),
    all_args_info=None,
    pgle_profiler=None,
  )
  donated = _donated(signature)
  info = [stages.ArgInfo(_aval(x), i in donated) for i, x in enumerate(args)]
  info = jax.tree.unflatten(in_tree, info)
  return stages.Compiled(unloaded.load(), [], info, out_tree, no_kwargs=True)


def _options(
  devices: xla_client.DeviceList,
) -> xla_client.CompileOptions | None:
  """Returns options that set the device ids for a CPU runtime.

  Without them, the runtime uses the ids in the bytes. The ids depend on the
  processes that own the devices. Four CPUs of one process, which also compiles
  for groups, have the ids 0 to 3. Two CPUs of a second process have 2048 and
  2049.
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


def _donated(signature: executables.Signature) -> tuple[int, ...]:
  """Returns the indices of the arguments' leaves that may be overwritten."""
  owners = [i for i, a in enumerate(signature.args) for _ in jax.tree.leaves(a)]
  return tuple(n for n, i in enumerate(owners) if i in signature.donated)


def _aval(x: jax.ShapeDtypeStruct) -> core.ShapedArray:
  return core.ShapedArray(x.shape, x.dtype)


def stablehlo(run: executables.Executables, key: executables.Key) -> bytes:
  """Returns a program as StableHLO with JAX's calling convention.

  Its arguments and results are leaves. To read trees, a reader would need their
  classes.
  """
  signature = run.signature(key)
  leaves, tree = jax.tree.flatten(signature.args)
  function = run.jitted(key)

  def flat(*leaves):
    return tuple(jax.tree.leaves(function(*tree.unflatten(leaves))))

  jitted = jax.jit(
    flat,
    donate_argnums=_donated(signature),
    out_shardings=tuple(x.sharding for x in jax.tree.leaves(signature.results)),
  )
  # JAX does not know these functions, so it cannot guarantee compatibility.
  names = (*kernels.TARGETS, *_NOT_GUARANTEED)
  own = [export.DisabledSafetyCheck.custom_call(n) for n in names]
  exporter = export.export(
    jitted, platforms=[platform(run)], disabled_checks=own
  )
  if run.mesh is None:
    return bytes(exporter(*leaves).serialize())
  with jax.set_mesh(run.mesh):
    return bytes(exporter(*leaves).serialize())


def compile_exported(
  content: bytes, signature: executables.Signature
) -> Callable:
  """Compiles the output of `stablehlo`.

  Args:
    content: The bytes.
    signature: The signature from the `Executables` that exported the program.
  """
  exported = export.deserialize(bytearray(content))
  jitted = jax.jit(exported.call, donate_argnums=_donated(signature))
  compiled = jitted.lower(*jax.tree.leaves(signature.args)).compile()
  results = jax.tree.structure(signature.results)
  return lambda *args: results.unflatten(compiled(*jax.tree.leaves(args)))


def platform(run: executables.Executables) -> str:
  """Returns the platform of an engine's programs: 'cpu', 'tpu' or 'cuda'."""
  name = devices(run)[0].platform
  return 'cuda' if name == 'gpu' else name


def devices(run: executables.Executables) -> list[jax.Device]:
  """Returns the devices of an engine's programs, in the order of the mesh."""
  if run.mesh is not None:
    return list(run.mesh.devices.flat)
  weights = run.signature(program_keys.EmptyState()).args[0]
  placement = jax.tree.leaves(weights)[0].sharding
  return list(placement.device_set) if placement else jax.devices()[:1]


def sort_object_files(executable: bytes) -> bytes:
  """Returns a CPU executable with its object files sorted by their bytes.

  XLA compiles a program's kernels on several threads, and writes each object
  file when its thread finishes. Two compilations of one program differ only in
  this order. The order has no meaning, because the files are linked by the
  names of their symbols. Sorting the files makes the bytes of equal programs
  equal.

  The bytes are protocol buffers without a published schema (jaxlib 0.10). A
  header comes first, preceded by its length. A message follows. Its field 1 is
  XLA's CompilationResultProto, and field 8 of that contains the object files.

  Raises:
    ValueError: The bytes have another layout.
  """
  length, begin = _varint(executable, 0)
  for number, start, end in _fields(executable, begin + length):
    if number == _RESULT:
      _, after_tag = _varint(executable, start)
      _, start = _varint(executable, after_tag)
      middle = _sorted(executable[start:end])
      return executable[:start] + middle + executable[end:]
  raise ValueError('the executable has no compilation result')


def _sorted(result: bytes) -> bytes:
  """Returns a CompilationResultProto with its object files sorted."""
  fields = list(_fields(result, 0))
  files = sorted(result[a:b] for n, a, b in fields if n == _OBJECT_FILE)
  if not all(_ELF in file for file in files):
    raise ValueError('an object file of the executable is not an ELF file')
  rest = [result[a:b] for n, a, b in fields if n != _OBJECT_FILE]
  first = [n == _OBJECT_FILE for n, *_ in fields].index(True) if files else 0
  return b''.join([*rest[:first], *files, *rest[first:]])


def _fields(message: bytes, at: int) -> Iterator[tuple[int, int, int]]:
  """Yields number, start and end of each field from `at` on, with its tag."""
  while at < len(message):
    start = at
    tag, at = _varint(message, at)
    kind = tag & 7
    if kind in (_VARINT, _DELIMITED):
      value, at = _varint(message, at)
      at += value if kind == _DELIMITED else 0
    elif kind in _FIXED:
      at += _FIXED[kind]
    else:
      raise ValueError(f'byte {start} of the executable does not begin a field')
    if at > len(message):
      raise ValueError(
        f'the field at byte {start} of the executable is cut off'
      )
    yield tag >> 3, start, at


def _varint(message: bytes, at: int) -> tuple[int, int]:
  """Returns a variable-length integer, and the index after its last byte."""
  value = 0
  for index, byte in enumerate(message[at : at + 10]):
    value |= (byte & 127) << 7 * index
    if byte < 128:
      return value, at + index + 1
  raise ValueError('the executable ends within a number')
