"""Produces the official description of a system.

Many values are detected on the machine. A preset contains the values of a known
system. Some values only the user knows, such as the submitter, the cooling and
the network topology.

The required keys and the keys that must not be empty are those of
tools/submission/submission_checker.py in mlcommons/inference, v4.0 to v6.1. The
meanings are our own text, because the checker has none.
"""

from collections.abc import Mapping
import dataclasses
import difflib
import os
import pathlib
import re
from typing import Any

from absl import logging
import yaml

from harness.description import cuda as cuda_lib
from harness.description import host
from saxml_ext.common import files as files_lib
from saxml_ext.common.machine import accelerators
from saxml_ext.common.machine import machine_files

DIVISIONS = ('closed', 'open', 'network')
STATUSES = ('available', 'preview', 'rdi')
SYSTEM_TYPES = ('datacenter', 'edge', 'datacenter,edge', 'edge,datacenter')


@dataclasses.dataclass(frozen=True)
class Field:
  """A key of the description.

  Attributes:
    meaning: The meaning of the value.
    filled: True if the checker rejects an empty value.
    choices: The allowed values; empty if any value is allowed.
  """

  meaning: str
  filled: bool = True
  choices: tuple[str, ...] = ()


_EMPTY = False

REQUIRED: Mapping[str, Field] = {
  'submitter': Field(
    'the organization, which is also the name of its directory'
  ),
  'division': Field('the division of the submission', choices=DIVISIONS),
  'status': Field(
    'the availability: available, preview (soon), or rdi (research,'
    ' development or internal)',
    choices=STATUSES,
  ),
  'system_name': Field('the name of the system'),
  'system_type': Field('the category of the submission', choices=SYSTEM_TYPES),
  'system_type_detail': Field('details, such as "cloud instance"', _EMPTY),
  'number_of_nodes': Field('the number of machines in the system'),
  'host_processors_per_node': Field('the number of CPU sockets per machine'),
  'host_processor_model_name': Field('the model of the CPU'),
  'host_processor_core_count': Field('the number of cores per CPU'),
  'host_processor_frequency': Field("the CPU's clock", _EMPTY),
  'host_processor_caches': Field("the CPU's caches", _EMPTY),
  'host_processor_interconnect': Field(
    'the connection between the CPUs', _EMPTY
  ),
  'host_memory_capacity': Field('the memory per machine'),
  'host_memory_configuration': Field(
    'the memory modules, such as "12x 16 GB DDR4"; root reads them with'
    ' dmidecode'
  ),
  'host_storage_type': Field('the kinds of disks, such as "NVMe SSD"'),
  'host_storage_capacity': Field('the size of the disks'),
  'host_networking': Field('the kind of network, such as "100 Gb Ethernet"'),
  'host_networking_topology': Field(
    'the connection of the machines, such as "Ethernet on a switch", or "N/A"'
  ),
  'host_network_card_count': Field('the number of network cards per machine'),
  'accelerators_per_node': Field(
    'the number of accelerators per machine; 0 if none'
  ),
  'accelerator_model_name': Field('the model of the accelerator'),
  'accelerator_frequency': Field("the accelerator's clock", _EMPTY),
  'accelerator_host_interconnect': Field(
    'the connection of accelerator and CPU, such as "PCIe Gen5 x16"'
  ),
  'accelerator_interconnect': Field(
    'the connection of the accelerators, such as "NVLink", or "N/A"'
  ),
  'accelerator_interconnect_topology': Field(
    'the topology, such as "2D torus", or "N/A"', _EMPTY
  ),
  'accelerator_memory_capacity': Field('the memory per accelerator'),
  'accelerator_memory_configuration': Field(
    'the kind of memory, such as "HBM3"'
  ),
  'accelerator_on-chip_memories': Field('the on-chip memories', _EMPTY),
  'cooling': Field('the cooling, such as "air", "liquid" or "passive"'),
  'hw_notes': Field('notes on the hardware', _EMPTY),
  'framework': Field('the framework that runs the model'),
  'operating_system': Field('the name and version of the operating system'),
  'other_software_stack': Field(
    'the drivers and libraries with their versions'
  ),
  'sw_notes': Field('notes on the software', _EMPTY),
}

# These keys are required too if "is_network" is "true", because LoadGen then
# runs on another host.
NETWORK: Mapping[str, Field] = {
  'is_network': Field('"true" if LoadGen runs on another host'),
  'network_type': Field('the type, such as "Ethernet"', _EMPTY),
  'network_media': Field(
    'the medium, such as "copper" or "optical fibre"', _EMPTY
  ),
  'network_rate': Field('the rate, such as "100 Gbit/s"', _EMPTY),
  'nic_loadgen': Field("the model of the LoadGen host's network card", _EMPTY),
  'number_nic_loadgen': Field('the number of these cards', _EMPTY),
  'net_software_stack_loadgen': Field(
    "the driver and network stack of LoadGen's host", _EMPTY
  ),
  'network_protocol': Field('the protocol, such as "gRPC over TCP"', _EMPTY),
  'number_connections': Field('the connections between the two hosts', _EMPTY),
  'nic_sut': Field("the model of the system's network card", _EMPTY),
  'number_nic_sut': Field('the number of these cards', _EMPTY),
  'net_software_stack_sut': Field(
    'the driver and network stack of the system', _EMPTY
  ),
  'network_topology': Field('the connection of the two hosts', _EMPTY),
}

# The checker requires these keys only with power measurements.
POWER: Mapping[str, Field] = {
  'power_management': Field('the settings of the power management', _EMPTY),
  'filesystem': Field('the file system of the disks', _EMPTY),
  'boot_firmware_version': Field('the version of BIOS or UEFI', _EMPTY),
  'management_firmware_version': Field('the version of the BMC', _EMPTY),
  'other_hardware': Field('other hardware that draws power', _EMPTY),
  'number_of_type_nics_installed': Field('the network cards by type', _EMPTY),
  'nics_enabled_firmware': Field('the cards that the firmware enables', _EMPTY),
  'nics_enabled_os': Field('the cards that the system enables', _EMPTY),
  'nics_enabled_connected': Field('the cards with a cable', _EMPTY),
  'network_speed_mbit': Field('the speed of the network in Mbit/s', _EMPTY),
  'power_supply_quantity_and_rating_watts': Field(
    'the power supplies and their ratings', _EMPTY
  ),
  'power_supply_details': Field('the models of the power supplies', _EMPTY),
  'disk_drives': Field('the models of the disks', _EMPTY),
  'disk_controllers': Field('the models of the disk controllers', _EMPTY),
}

ALL: Mapping[str, Field] = {**REQUIRED, **NETWORK, **POWER}

# Published descriptions contain these placeholders for missing values.
_PLACEHOLDERS = ('', 'todo', 'tbd')

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


def is_filled(value: Any) -> bool:
  """Returns True if a value is filled in, such as "N/A" but not "TODO"."""
  return str(value).strip().lower() not in _PLACEHOLDERS and value != {}


def missing(values: Mapping[str, Any]) -> list[str]:
  """Returns the keys that a submission needs and that have no value here."""
  needed = dict(REQUIRED)
  if str(values.get('is_network', '')).lower() == 'true':
    needed |= NETWORK
  return [
    name
    for name, field in needed.items()
    if name not in values or (field.filled and not is_filled(values[name]))
  ]


# The checker of v6 multiplies these, so they must be integers.
COUNTS = ('number_of_nodes', 'accelerators_per_node')


def check(values: Mapping[str, Any]) -> None:
  """Checks the names of keys, and values that must have a certain form.

  Raises:
    ValueError: A key or value is invalid.
  """
  for name, value in values.items():
    if name not in ALL:
      near = difflib.get_close_matches(name, ALL, 1)
      raise ValueError(
        f'{name!r} is no key of a system description'
        + (f'; did you mean {near[0]}?' if near else '')
      )
    if isinstance(value, (list, dict)):
      raise ValueError(f'{name} is {value!r}. Write a text or a number')
    if (
      name in COUNTS
      and is_filled(value)
      and not re.fullmatch('[0-9]+', str(value))
    ):
      raise ValueError(f'{name} is {value!r}. Write a whole number')
    choices = ALL[name].choices
    if choices and is_filled(value) and value not in choices:
      raise ValueError(
        f'{name} is {value!r}; it must be one of'
        f' {", ".join(map(repr, choices))}'
      )


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
    return Preset('the machine that runs this program', '', False, {})
  if name not in preset_names():
    raise ValueError(
      f'no system {name!r} is known. Available: {", ".join(preset_names())}.'
      ' For other systems, use --system_description=FILE'
    )
  preset: Preset = files_lib.read_json(_PRESETS / f'{name}.json', Preset)
  check(preset.values)
  return preset


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
  check(overrides)
  known = read_preset(preset or THIS_MACHINE)
  if detected is None:
    detected = detect()
  model = 'accelerator_model_name'
  if known.whole and detected[model] != known.values[model]:
    # The preset describes another machine, so only the software of this machine
    # is used.
    detected = {key: detected[key] for key in _SOFTWARE if key in detected}
  values = dict.fromkeys(REQUIRED, '')
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
  values |= cuda_lib.describe_accelerators(
    cuda, accelerators.detect_tpu(files, environment)
  )
  values |= _software(cuda)
  return {key: value for key, value in values.items() if value}


def read_file(path: str) -> dict[str, Any]:
  """Reads a YAML or JSON file with the user's values, by key.

  Raises:
    OSError: The file cannot be read.
    ValueError: The file has another format, or contains an invalid key.
  """
  with open(path, encoding='utf-8') as file:
    try:
      text = file.read()
      values = yaml.safe_load(text)
    except (UnicodeDecodeError, yaml.YAMLError) as error:
      raise ValueError(f'{path} is neither YAML nor JSON: {error}') from error
  if not isinstance(values, dict):
    raise ValueError(
      f'{path} must contain values by key, such as "cooling: air". It contains'
      f' a {type(values).__name__}'
    )
  lines: dict[str, int] = {}
  for node, _ in yaml.compose(text).value:
    name, line = node.value, node.start_mark.line + 1
    try:
      check({name: values.get(name)})
      if name in lines:
        raise ValueError(f'{name} is in line {lines[name]} too. Remove one')
    except ValueError as error:
      raise ValueError(f'{path}, line {line}: {error}') from error
    lines[name] = line
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
  versions = host.versions()
  words = [host.stack(versions)]
  for name, version in (
    ('CUDA', cuda.cuda),
    ('cuDNN', cuda.cudnn),
    ('TensorRT', cuda.tensorrt),
    ('driver', cuda.driver),
  ):
    if version:
      words.append(f'{name} {version}')
  values = {'other_software_stack': ', '.join(words)}
  if 'jax' in versions:
    values['framework'] = host.framework(versions)
  return values
