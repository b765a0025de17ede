"""Produces the official description of a system.

The submission checker requires 35 keys (fields.py). Many values are detected on
the machine. A preset contains the values of a known system. Some values only
the user knows, such as the submitter, the cooling and the network topology.
"""

from collections.abc import Iterable, Mapping
import dataclasses
import hashlib
import os
import pathlib
from typing import Any

from absl import logging
import yaml

from harness.description import cuda as cuda_lib
from harness.description import fields
from harness.description import host
from harness.description import software
from saxml_ext.common import files as files_lib
from saxml_ext.common.machine import accelerators
from saxml_ext.common.machine import machine_files

_KEYS = (
  'accelerator_model_name',
  'accelerator_frequency',
  'accelerator_host_interconnect',
  'accelerator_interconnect',
  'accelerator_interconnect_topology',
  'accelerator_memory_capacity',
  'accelerator_memory_configuration',
  'accelerator_on-chip_memories',
)
_GIB = 2**30


# The preset of the machine that runs this program, with detected values.
THIS_MACHINE = 'this_machine'

_PRESETS = pathlib.Path(__file__).parent / 'presets'


@dataclasses.dataclass(frozen=True)
class Preset:
  """The known values of a system.

  Attributes:
    about: The kind of system, in a sentence.
    source: The published description that the values are from.
    whole: True if the values also describe the host. Otherwise the host is this
      machine.
    values: The values, by key of the description.
  """

  about: str
  source: str
  whole: bool
  values: Mapping[str, Any]


def preset_names() -> list[str]:
  """Returns the names of all presets, sorted."""
  return sorted(
    [THIS_MACHINE, *(path.stem for path in _PRESETS.glob('*.json'))]
  )


def read_preset(name: str) -> Preset:
  """Returns the preset with a name.

  Raises:
    ValueError: There is no such preset.
  """
  if name == THIS_MACHINE:
    return Preset('the machine that this runs on', '', False, {})
  if name not in preset_names():
    raise ValueError(
      f'no system {name!r} is known; choose one of {", ".join(preset_names())},'
      ' or give --system_description=FILE'
    )
  preset: Preset = files_lib.read_json(_PRESETS / f'{name}.json', Preset)
  fields.check(preset.values)
  return preset


def describe_accelerators(
  cuda: cuda_lib.Cuda, tpu: accelerators.Tpu | None
) -> dict[str, str]:
  """Returns the values of the description that refer to accelerators.

  Returns:
    The known values, by key. All are "N/A" if the machine has no accelerators.
  """
  if tpu is not None:
    return {
      'accelerators_per_node': str(tpu.chips),
      'accelerator_model_name': tpu.model,
    }
  if cuda.devices:
    return _cuda_devices(cuda.devices)
  return {'accelerators_per_node': '0'} | dict.fromkeys(_KEYS, 'N/A')


def _cuda_devices(devices: tuple[cuda_lib.Device, ...]) -> dict[str, str]:
  values = {
    'accelerators_per_node': str(len(devices)),
    'accelerator_model_name': _joined(each.name for each in devices),
    'accelerator_memory_capacity': _joined(
      f'{each.memory_bytes / _GIB:.0f} GiB'
      for each in devices
      if each.memory_bytes
    ),
    'accelerator_frequency': _joined(
      f'{each.max_graphics_clock_mhz} MHz (max)'
      for each in devices
      if each.max_graphics_clock_mhz
    ),
    'accelerator_host_interconnect': _joined(
      f'PCIe Gen{each.pcie_generation} x{each.pcie_width}'
      for each in devices
      if each.pcie_generation and each.pcie_width
    ),
  }
  if len(devices) == 1:
    values['accelerator_interconnect'] = 'N/A'
  return {key: value for key, value in values.items() if value}


def _joined(texts: Iterable[str]) -> str:
  return '; '.join(dict.fromkeys(texts))


versions = software.versions
missing = fields.missing

_SOFTWARE = ('framework', 'other_software_stack')


def describe(
  preset: str | None = None,
  overrides: Mapping[str, Any] | None = None,
  detected: Mapping[str, str] | None = None,
) -> dict[str, Any]:
  """Returns the description with all required keys; "" for unknown values.

  Args:
    preset: The name of a known system, see preset_names(). None selects this
      machine.
    overrides: The user's values, by key. They replace all others. Jobs that do
      not run the model in JAX set the framework here, see `framework`.
    detected: The result of `detect`. None calls it.

  Raises:
    ValueError: The preset is unknown, or a key or value is invalid.
  """
  overrides = overrides or {}
  fields.check(overrides)
  known = read_preset(preset or THIS_MACHINE)
  if detected is None:
    detected = detect()
  model = 'accelerator_model_name'
  if known.whole and detected[model] != known.values[model]:
    # The preset describes another machine, so only the software of this machine
    # is used.
    detected = {key: detected[key] for key in _SOFTWARE if key in detected}
  values = dict.fromkeys(fields.REQUIRED, '')
  return values | dict(detected) | dict(known.values) | dict(overrides)


def detect(
  files: machine_files.MachineFiles | None = None,
  environment: Mapping[str, str] = os.environ,
  cuda: cuda_lib.Cuda | None = None,
) -> dict[str, str]:
  """Returns the detected values of this machine, without unknown ones.

  Args:
    files: A replacement for the files under /. If it is set, no programs are
      called, and only CUDA and the software are detected on the real machine.
    environment: The environment variables to check.
    cuda: The CUDA installation. None queries the driver.
  """
  real = files is None
  files = files or machine_files.MachineFiles()
  cpu = host.detect_cpu(files, host.run_lscpu() if real else None)
  values = {
    'number_of_nodes': '1',
    'host_processor_model_name': cpu.model,
    'host_processors_per_node': str(cpu.sockets or ''),
    'host_processor_core_count': str(cpu.cores or ''),
    'host_processor_frequency': cpu.frequency,
    'host_processor_caches': cpu.caches,
  }
  if cpu.sockets == 1:
    values['host_processor_interconnect'] = 'N/A'
  values |= host.detect(files, host.run_dmidecode() if real else '')
  cuda = cuda or _cuda()
  values |= describe_accelerators(
    cuda, accelerators.detect_tpu(files, environment)
  )
  values |= _software(cuda)
  return {key: value for key, value in values.items() if value}


def framework(package: str) -> str:
  """Returns the value of the key `framework` for this process.

  Args:
    package: The package that runs the model: jax, torch or onnxruntime.
  """
  return software.framework(software.versions(), package)


def governor() -> str | None:
  """Returns the CPU's frequency governor, or None if it cannot be read."""
  return host.governor(machine_files.MachineFiles())


def read_file(path: str) -> dict[str, Any]:
  """Reads a YAML or JSON file with the user's values, by key.

  Raises:
    OSError: The file cannot be read.
    ValueError: The file has another format, or contains an invalid key.
  """
  with open(path, encoding='utf-8') as file:
    try:
      values = yaml.safe_load(file)
    except (UnicodeDecodeError, yaml.YAMLError) as error:
      raise ValueError(f'{path} is neither YAML nor JSON: {error}') from error
  if not isinstance(values, dict):
    raise ValueError(
      f'{path} must hold values by key, such as "cooling: air", not'
      f' {type(values).__name__}'
    )
  try:
    fields.check(values)
  except ValueError as error:
    raise ValueError(f'{path}: {error}') from error
  return values


def _cuda() -> cuda_lib.Cuda:
  try:
    return cuda_lib.detect()
  except cuda_lib.CudaError as error:
    # A job may not need the GPU, so it continues without GPUs in its
    # description.
    logging.warning('%s', error)
    return cuda_lib.Cuda()


def _software(cuda: cuda_lib.Cuda) -> dict[str, str]:
  found = software.versions()
  words = [software.stack(found)]
  for name, version in (
    ('CUDA', cuda.cuda),
    ('cuDNN', cuda.cudnn),
    ('TensorRT', cuda.tensorrt),
    ('driver', cuda.driver),
  ):
    if version:
      words.append(f'{name} {version}')
  values = {'other_software_stack': ', '.join(words)}
  if 'jax' in found:
    values['framework'] = software.framework(found)
  return values


def file_sha256(path: str) -> str:
  """Returns the SHA-256 of a file, as sha256sum prints it.

  Raises:
    OSError: The file cannot be read.
  """
  with open(path, 'rb') as file:
    return hashlib.file_digest(file, 'sha256').hexdigest()


def tree_sha256(directory: str) -> str:
  """Returns the SHA-256 of a directory, from its files' names and contents.

  This is the hash of the output of `sha256sum` for all files. The paths are
  relative to the directory and sorted in byte order. Empty directories, times
  and permissions have no effect.

  Raises:
    OSError: A file cannot be read.
    ValueError: The directory contains no file.
  """

  def fail(error: OSError) -> None:
    raise error

  paths = [
    os.path.relpath(os.path.join(parent, name), directory)
    for parent, _, names in os.walk(directory, onerror=fail)
    for name in names
  ]
  if not paths:
    raise ValueError(f'{directory} holds no file')
  digest = hashlib.sha256()
  for path in sorted(paths, key=os.fsencode):
    line = f'{file_sha256(os.path.join(directory, path))}  '
    digest.update(line.encode() + os.fsencode(path) + b'\n')
  return digest.hexdigest()
