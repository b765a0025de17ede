"""Checks whether a program uses the accelerator of its machine.

JAX runs on the CPU without a message if the package that drives the accelerator
is missing. Bazel brings that package only with --config. Without it, a program
on a TPU VM would run for hours on the CPU. So programs call this module to
compare the machine with the installed packages, and to warn the user. It does
not need JAX.
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

# These are the names in Bazel's --config and in JAX's platforms.
TPU = 'tpu'
CUDA = 'cuda'

# A user sets this variable to choose the platforms that JAX may use.
PLATFORMS = 'JAX_PLATFORMS'
# JAX loads this file instead of the installed package's.
_LIBTPU = 'TPU_LIBRARY_PATH'
# NVIDIA's driver creates one of these for each GPU. WSL2 has /dev/dxg.
_NVIDIA_NODES = ('/dev/nvidia[0-9]*', '/dev/dxg')
_NVIDIA_INFORMATION = '/proc/driver/nvidia/gpus/*/information'
# In Bazel, this file is in the runfiles, which have the repository's layout.
_ROOT = pathlib.Path(__file__).resolve().parents[3]
# The PCI ids are those in jax/_src/hardware_utils.py.
_GOOGLE = '0x1ae0'
_CHIPS = {
  '0x0027': 'TPU v3',
  '0x005e': 'TPU v4',
  '0x0062': 'TPU v5p',
  '0x0063': 'TPU v5e',
  '0x006f': 'TPU v6e',
  '0x0076': 'TPU7x',
}
# TPU VMs, GKE and Docker images set this, for example to v5litepod-4 or v6e-8.
_TYPE_VARIABLE = 'TPU_ACCELERATOR_TYPE'
_TYPE = re.compile(r'(v\d+)(litepod|e|p|i)?-\d+')
_NODES = ('/dev/accel[0-9]*', '/dev/vfio/[0-9]*')


@dataclasses.dataclass(frozen=True)
class _Kind:
  """The properties of one kind of accelerator.

  Attributes:
    noun: The name of one accelerator, with an article.
    package: The name of the package that JAX needs for it.
    modules: The modules of that package. One of them is enough.
    extra: The extra of the package jax that installs it outside Bazel.
    signs: The files and variables that show it on a machine.
    hint: The advice for a user whose JAX cannot use an existing one.
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
    hint='Only one process at a time can use it. End the other one.',
  ),
  CUDA: _Kind(
    noun='an NVIDIA GPU',
    package="JAX's plugin for CUDA",
    modules=('jax_plugins.xla_cuda12', 'jax_plugins.xla_cuda13'),
    extra='cuda13',
    signs=f"{' or '.join(_NVIDIA_NODES)} of NVIDIA's driver",
    hint=(
      '`nvidia-smi` shows the state and the version of its driver. A driver'
      ' older than 580 and a GPU older than Turing need --config=cuda12.'
    ),
  ),
}


@dataclasses.dataclass(frozen=True)
class Accelerator:
  """The accelerators of this host.

  Attributes:
    kind: The kind: TPU or CUDA.
    words: The number and the model, such as "4 x TPU v5e".
  """

  kind: str
  words: str


def detect(
  files: machine_files.MachineFiles | None = None,
  environment: Mapping[str, str] = os.environ,
) -> Accelerator | None:
  """Returns the host's accelerators, or None without TPU chips and NVIDIA GPUs.

  Args:
    files: The machine's files; by default, those under /.
    environment: The environment variables.
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
  """Returns the kind in Bazel's --config, or "" without it or outside Bazel."""
  try:
    module = importlib.import_module('saxml_ext.common.machine.built_for')
  except ModuleNotFoundError:
    return ''  # Only Bazel generates this module.
  return module.KIND


def drivable() -> tuple[str, ...]:
  """Returns the kinds that JAX can drive with the program's packages."""
  return tuple(
    name
    for name, kind in _KINDS.items()
    if name == built_for() or any(map(_is_module, kind.modules))
  )


def used(
  platforms: str | None,
  files: machine_files.MachineFiles | None = None,
  environment: Mapping[str, str] = os.environ,
) -> tuple[str, ...]:
  """Returns the kinds that this program should use.

  The presence of libtpu alone is not enough, because libtpu also compiles
  programs on machines without a TPU.

  Args:
    platforms: The value of JAX_PLATFORMS; see `is_meant`.
    files: The machine's files; by default, those under /.
    environment: The environment variables.
  """
  detected = detect(files, environment)
  return tuple(
    kind
    for kind in drivable()
    if kind == built_for() or (detected and detected.kind == kind)
    if is_meant(kind, platforms)
  )


def is_meant(kind: str, platforms: str | None) -> bool:
  """Returns True if JAX may use a kind of accelerator.

  Args:
    kind: The kind: TPU or CUDA.
    platforms: The value of JAX_PLATFORMS, such as "cpu" or "tpu,cpu". None or
      "" allows all.
  """
  names = [name.strip() for name in (platforms or '').split(',')]
  if not any(names):
    return True
  # JAX's name "gpu" stands for CUDA and ROCm.
  return kind in names or (kind == CUDA and 'gpu' in names)


def idle(
  kinds: Collection[str] | None = None,
  files: machine_files.MachineFiles | None = None,
  environment: Mapping[str, str] = os.environ,
  program: str | None = None,
) -> str:
  """Returns a warning if this program leaves an accelerator idle, else "".

  Args:
    kinds: The kinds that JAX can drive; by default, the result of `drivable`.
    files: The machine's files; by default, those under /.
    environment: The environment variables.
    program: The path of the running program; by default, that of this process.

  Returns:
    One line with the command to type. It is "" if the host has no accelerator,
    if
    JAX can drive it, or if JAX_PLATFORMS names other platforms.
  """
  detected = detect(files, environment)
  if (
    detected is None
    or detected.kind in (drivable() if kinds is None else kinds)
    or not is_meant(detected.kind, environment.get(PLATFORMS))
  ):
    return ''
  command = _command(detected.kind, sys.argv[0] if program is None else program)
  return (
    f'this machine has {detected.words}, but the program has no'
    f' {_KINDS[detected.kind].package} and computes on the CPU. To use the'
    f' accelerator: {command}. To silence this: {PLATFORMS}=cpu.'
  )


def unusable(kind: str, reason: str = '') -> str:
  """Returns an error message: accelerator support is installed but unusable.

  Args:
    kind: The kind: TPU or CUDA.
    reason: The reason why JAX cannot use it. "" if the machine shows none.
  """
  details = _KINDS[kind]
  why = f'this machine has none (looked for {details.signs}).'
  if reason:
    why = f'{reason}. {details.hint}'
  return (
    f'the program was built for {details.noun} (--config={kind}, with'
    f' {details.package}), but cannot use one: {why} To compute on the CPU,'
    f' omit --config={kind} or set {PLATFORMS}=cpu.'
  )


def foreign_libtpu(environment: Mapping[str, str] = os.environ) -> str:
  """Returns an error message if JAX would load a libtpu other than ours.

  The engine's kernels need the version with which JAX was released. An image of
  a TPU VM may set the variable to an older version, and JAX prefers the
  variable.

  Args:
    environment: The environment variables.

  Returns:
    The message, or "" if JAX loads ours.
  """
  path = environment.get(_LIBTPU)
  spec = importlib.util.find_spec('libtpu')
  if not path or spec is None or spec.origin is None:
    return ''
  if not os.path.exists(path):
    return ''  # JAX logs a warning and ignores it.
  own = pathlib.Path(spec.origin).with_name('libtpu.so')
  if pathlib.Path(path).resolve() == own.resolve():
    return ''
  return (
    f'{_LIBTPU} is {path}, so JAX would load another libtpu than that of the'
    f" program ({own}), which the engine's kernels need. Unset {_LIBTPU}. To"
    f' compute on the CPU, set {PLATFORMS}=cpu.'
  )


def _model(information: str) -> str:
  """Returns the GPU model in the text of NVIDIA's driver, or "" without one."""
  for line in information.splitlines():
    name, _, value = line.partition(':')
    if name.strip() == 'Model':
      return value.strip()
  return ''


def _is_module(name: str) -> bool:
  try:
    return importlib.util.find_spec(name) is not None
  except ModuleNotFoundError:
    return False  # Its package is missing too.


def _command(kind: str, program: str) -> str:
  """Returns the command that runs this program on the accelerator."""
  path = pathlib.Path(program).resolve()
  if path.suffix == '.py' and path.is_relative_to(_ROOT):
    package = path.parent.relative_to(_ROOT).as_posix()
    return f'`./bazelw run --config={kind} //{package}:{path.stem}`'
  return f"`pip install 'jax[{_KINDS[kind].extra}]'` with this program"


@dataclasses.dataclass(frozen=True)
class Tpu:
  """The TPU chips of this host.

  Attributes:
    model: The model, such as "TPU v5e".
    chips: The number of chips of this host, without other hosts of a slice.
  """

  model: str
  chips: int


def detect_tpu(
  files: machine_files.MachineFiles, environment: Mapping[str, str]
) -> Tpu | None:
  """Returns the TPU chips of this host, or None without any.

  The PCI bus shows the model and the number. Some containers hide the bus.
  There, the variable TPU_ACCELERATOR_TYPE gives the model, and the device files
  give the number.
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
  """Returns the PCI device ids of Google's devices."""
  return [
    files.text(path.removesuffix('vendor') + 'device')
    for path in files.find('/sys/bus/pci/devices/*/vendor')
    if files.text(path) == _GOOGLE
  ]
