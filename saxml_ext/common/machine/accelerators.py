"""Whether a program computes on the accelerator that its machine has.

JAX runs on the CPU, and says nothing, where the package that drives an
accelerator is missing; and Bazel brings that package only when --config tells
it to. Whoever starts a program on a TPU VM without it would wait for hours. So
programs ask here, without JAX, what the machine has and what they came with,
and tell their user.
"""

from collections.abc import Collection, Mapping
import dataclasses
import importlib
import importlib.util
import os
import pathlib
import re
import sys

from saxml_ext.common.machine import machine_files

# Kinds, as Bazel's --config and JAX's platforms call them.
TPU = 'tpu'
CUDA = 'cuda'

# Where a user tells JAX which platforms to use.
PLATFORMS = 'JAX_PLATFORMS'
# Names the file that JAX loads instead of the installed package's.
_LIBTPU = 'TPU_LIBRARY_PATH'
# What NVIDIA's driver makes for each GPU; the last is what WSL2 has.
_NVIDIA_NODES = ('/dev/nvidia[0-9]*', '/dev/dxg')
_NVIDIA_INFORMATION = '/proc/driver/nvidia/gpus/*/information'
# In Bazel this file lies in the runfiles, whose layout is the repository's.
_ROOT = pathlib.Path(__file__).resolve().parents[3]
# PCI ids, as jax/_src/hardware_utils.py has them.
_GOOGLE = '0x1ae0'
_CHIPS = {
  '0x0027': 'TPU v3',
  '0x005e': 'TPU v4',
  '0x0062': 'TPU v5p',
  '0x0063': 'TPU v5e',
  '0x006f': 'TPU v6e',
  '0x0076': 'TPU7x',
}
# What TPU VMs, GKE and Docker images set, such as v5litepod-4 or v6e-8.
_TYPE_VARIABLE = 'TPU_ACCELERATOR_TYPE'
_TYPE = re.compile(r'(v\d+)(litepod|e|p|i)?-\d+')
_NODES = ('/dev/accel[0-9]*', '/dev/vfio/[0-9]*')


@dataclasses.dataclass(frozen=True)
class _Kind:
  """What is known of a kind of accelerator.

  Attributes:
    noun: what one of them is.
    package: what JAX needs for it, in words.
    modules: of that package, any of which will do.
    extra: of the package jax, which brings it outside Bazel.
    signs: where the machine would show it.
    hint: what to look at where JAX cannot use one that is there.
  """

  noun: str
  package: str
  modules: tuple[str, ...]
  extra: str
  signs: str
  hint: str


_KINDS = {
  TPU: _Kind(
    noun='a TPU',
    package='libtpu',
    modules=('libtpu',),
    extra='tpu',
    signs=(
      'PCI devices of vendor 0x1ae0 (Google) in /sys/bus/pci/devices, or'
      ' $TPU_ACCELERATOR_TYPE with /dev/accel* or /dev/vfio/*'
    ),
    hint='one process at a time can use it: end what else computes on it.',
  ),
  CUDA: _Kind(
    noun='an NVIDIA GPU',
    package="JAX's plugin for CUDA",
    modules=('jax_plugins.xla_cuda12', 'jax_plugins.xla_cuda13'),
    extra='cuda12',
    signs=f"{' or '.join(_NVIDIA_NODES)}, which NVIDIA's driver makes",
    hint='`nvidia-smi` shows whether its driver works, and its version.',
  ),
}


@dataclasses.dataclass(frozen=True)
class Accelerator:
  """The accelerators of this host.

  Attributes:
    kind: TPU or CUDA.
    words: how many of which model, such as "4 x TPU v5e".
  """

  kind: str
  words: str


def detect(
  files: machine_files.MachineFiles | None = None,
  environment: Mapping[str, str] = os.environ,
) -> Accelerator | None:
  """What the host has; None without TPU chips and NVIDIA GPUs.

  Args:
    files: of the machine; None: those under /.
    environment: variables to look at.
  """
  files = files or machine_files.MachineFiles()
  if tpu := detect_tpu(files, environment):
    return Accelerator(TPU, f'{tpu.chips} x {tpu.model}')
  nodes = [path for pattern in _NVIDIA_NODES for path in files.find(pattern)]
  if not nodes:
    return None
  models = [
    _model(files.text(path)) for path in files.find(_NVIDIA_INFORMATION)
  ]
  model = next(filter(None, models), 'NVIDIA GPU')
  return Accelerator(CUDA, f'{len(nodes)} x {model}')


def built_for() -> str:
  """The kind that Bazel's --config named; "" without it and outside Bazel."""
  try:
    module = importlib.import_module('saxml_ext.common.machine.built_for')
  except ModuleNotFoundError:
    return ''  # Bazel makes it; a plain checkout has none.
  return module.KIND


def drivable() -> tuple[str, ...]:
  """Kinds that JAX can drive with the packages that this program came with."""
  return tuple(
    name
    for name, kind in _KINDS.items()
    if name == built_for() or any(map(_is_module, kind.modules))
  )


def expected(
  files: machine_files.MachineFiles | None = None,
  environment: Mapping[str, str] = os.environ,
) -> tuple[str, ...]:
  """Kinds that this program shall compute on, apart from JAX_PLATFORMS.

  That libtpu is there says nothing by itself: it compiles programs on machines
  without a TPU too.

  Args:
    files: of the machine; None: those under /.
    environment: variables to look at.
  """
  found = detect(files, environment)
  kinds = drivable()
  return tuple(
    kind
    for kind in kinds
    if kind == built_for() or (found and found.kind == kind)
  )


def is_meant(kind: str, platforms: str | None) -> bool:
  """Whether JAX may use a kind of accelerator.

  Args:
    kind: TPU or CUDA.
    platforms: as JAX_PLATFORMS has them, such as "cpu" or "tpu,cpu"; None or
      "": any.
  """
  names = [name.strip() for name in (platforms or '').split(',')]
  if not any(names):
    return True
  # "gpu" is what JAX calls CUDA and ROCm together.
  return kind in names or (kind == CUDA and 'gpu' in names)


def idle(
  kinds: Collection[str] | None = None,
  files: machine_files.MachineFiles | None = None,
  environment: Mapping[str, str] = os.environ,
  program: str | None = None,
) -> str:
  """Tells of an accelerator that this program leaves idle, and what to type.

  Args:
    kinds: those that JAX can drive; None: what `drivable` says.
    files: of the machine; None: those under /.
    environment: variables to look at.
    program: path of the running program; None: that of this process.

  Returns:
    A text of a line. "" where there is nothing to tell: the host has no
    accelerator, JAX can drive it, or JAX_PLATFORMS names other platforms.
  """
  found = detect(files, environment)
  if (
    found is None
    or found.kind in (drivable() if kinds is None else kinds)
    or not is_meant(found.kind, environment.get(PLATFORMS))
  ):
    return ''
  command = _command(found.kind, sys.argv[0] if program is None else program)
  return (
    f'this machine has {found.words}, but the program came without'
    f' {_KINDS[found.kind].package} and computes on the CPU. To use the'
    f' accelerator: {command}. To silence this: {PLATFORMS}=cpu.'
  )


def unusable(kind: str, reason: str = '') -> str:
  """Says that a program came with what drives an accelerator, in vain.

  Args:
    kind: TPU or CUDA.
    reason: why JAX cannot use it; "": the machine shows none.
  """
  told = _KINDS[kind]
  why = f'this machine shows none (looked for {told.signs}).'
  if reason:
    why = f'{reason}; {told.hint}'
  return (
    f'the program came with {told.package} (--config={kind}), to compute on'
    f' {told.noun}, which it cannot: {why} To compute on the CPU, leave'
    f' --config={kind} out or set {PLATFORMS}=cpu.'
  )


def foreign_libtpu(environment: Mapping[str, str] = os.environ) -> str:
  """Returns an error message if JAX would load another libtpu than ours, else "".

  The engine's kernels need the version that JAX was released with. An image of a
  TPU VM may set the variable to an older one, which JAX prefers.

  Args:
    environment: The variables to look at.
  """
  path = environment.get(_LIBTPU)
  spec = importlib.util.find_spec('libtpu')
  if not path or spec is None or spec.origin is None:
    return ''
  if not os.path.exists(path):
    return ''  # JAX warns and ignores it.
  own = pathlib.Path(spec.origin).with_name('libtpu.so')
  if pathlib.Path(path).resolve() == own.resolve():
    return ''
  return (
    f'{_LIBTPU} is {path}, so JAX would load another libtpu than the one that'
    f" the program came with ({own}). The engine's kernels need the latter."
    f' Unset {_LIBTPU}. To compute on the CPU, set {PLATFORMS}=cpu.'
  )


def _model(information: str) -> str:
  """The model that NVIDIA's driver tells of a GPU; "" if it does not."""
  for line in information.splitlines():
    name, _, value = line.partition(':')
    if name.strip() == 'Model':
      return value.strip()
  return ''


def _is_module(name: str) -> bool:
  try:
    return importlib.util.find_spec(name) is not None
  except ModuleNotFoundError:
    return False  # The package that it would be in is not there either.


def _command(kind: str, program: str) -> str:
  """What to type to run this program with what the accelerator needs."""
  path = pathlib.Path(program).resolve()
  if path.suffix == '.py' and path.is_relative_to(_ROOT):
    package = path.parent.relative_to(_ROOT).as_posix()
    return f'`./bazelw run --config={kind} //{package}:{path.stem}`'
  return f"`pip install 'jax[{_KINDS[kind].extra}]'` beside this program"


@dataclasses.dataclass(frozen=True)
class Tpu:
  """TPU chips of this host.

  Attributes:
    model: such as "TPU v5e".
    chips: attached to this host, whatever a slice has besides.
  """

  model: str
  chips: int


def detect_tpu(
  files: machine_files.MachineFiles, environment: Mapping[str, str]
) -> Tpu | None:
  """The chips of this host; None without any.

  The PCI bus knows kind and number. In a container that does not show it, the
  variable TPU_ACCELERATOR_TYPE tells the kind and the device files the number.
  """
  models = [_CHIPS.get(device, '') for device in _devices(files)]
  models = [model for model in models if model]
  if models:
    return Tpu(models[0], len(models))
  match = _TYPE.fullmatch(environment.get(_TYPE_VARIABLE, ''))
  if not match:
    return None
  nodes = max(len(files.find(pattern)) for pattern in _NODES)
  if not nodes:
    return None
  kind = (match[2] or '').replace('litepod', 'e')
  return Tpu(f'TPU {match[1]}{kind}', nodes)


def _devices(files: machine_files.MachineFiles) -> list[str]:
  """PCI device ids of what Google made."""
  return [
    files.text(path.removesuffix('vendor') + 'device')
    for path in files.find('/sys/bus/pci/devices/*/vendor')
    if files.text(path) == _GOOGLE
  ]
