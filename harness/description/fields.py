"""Defines the keys of the official system description, and their meanings.

The required keys and the keys that must not be empty are those of
tools/submission/submission_checker.py in mlcommons/inference, v4.0 to v6.1. The
meanings are our own text, because the checker has none.
"""

from collections.abc import Mapping
import dataclasses
import difflib
from typing import Any

DIVISIONS = ('closed', 'open', 'network')
STATUSES = ('available', 'preview', 'rdi')
SYSTEM_TYPES = (
  'datacenter',
  'edge',
  'datacenter,edge',
  'edge,datacenter',
)


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
  'submitter': Field('the organization; also the name of its directory'),
  'division': Field('division of the submission', choices=DIVISIONS),
  'status': Field(
    'whether it can be bought or rented: available, preview (soon), or rdi'
    ' (research, development or internal)',
    choices=STATUSES,
  ),
  'system_name': Field('what people call the system'),
  'system_type': Field('category of the submission', choices=SYSTEM_TYPES),
  'system_type_detail': Field('such as "cloud instance"', _EMPTY),
  'number_of_nodes': Field('machines that the system consists of'),
  'host_processors_per_node': Field('CPU sockets of a machine'),
  'host_processor_model_name': Field('model of the CPU'),
  'host_processor_core_count': Field('cores of one CPU'),
  'host_processor_frequency': Field("the CPU's clock", _EMPTY),
  'host_processor_caches': Field("the CPU's caches", _EMPTY),
  'host_processor_interconnect': Field('what joins the CPUs', _EMPTY),
  'host_memory_capacity': Field('memory of a machine'),
  'host_memory_configuration': Field(
    'its modules, such as "12x 16 GB DDR4"; root reads them with dmidecode'
  ),
  'host_storage_type': Field('kinds of its disks, such as "NVMe SSD"'),
  'host_storage_capacity': Field('size of its disks'),
  'host_networking': Field('its kind of network, such as "100 Gb Ethernet"'),
  'host_networking_topology': Field(
    'how machines are joined, such as "Ethernet on a switch", or "N/A"'
  ),
  'host_network_card_count': Field('network cards of a machine'),
  'accelerators_per_node': Field('accelerators of a machine; 0 if none'),
  'accelerator_model_name': Field('model of the accelerator'),
  'accelerator_frequency': Field("the accelerator's clock", _EMPTY),
  'accelerator_host_interconnect': Field(
    'what joins accelerator and CPU, such as "PCIe Gen5 x16"'
  ),
  'accelerator_interconnect': Field(
    'what joins accelerators, such as "NVLink", or "N/A"'
  ),
  'accelerator_interconnect_topology': Field(
    'such as "2D torus", or "N/A"', _EMPTY
  ),
  'accelerator_memory_capacity': Field('memory of one accelerator'),
  'accelerator_memory_configuration': Field('its kind, such as "HBM3"'),
  'accelerator_on-chip_memories': Field('its memories on the chip', _EMPTY),
  'cooling': Field('such as "air", "liquid" or "passive"'),
  'hw_notes': Field('what else there is to say of the hardware', _EMPTY),
  'framework': Field('what runs the model'),
  'operating_system': Field('with its version'),
  'other_software_stack': Field('drivers and libraries with their versions'),
  'sw_notes': Field('what else there is to say of the software', _EMPTY),
}

# These keys are required too if "is_network" is "true", because LoadGen then
# runs on another host.
NETWORK: Mapping[str, Field] = {
  'is_network': Field('"true" where LoadGen runs on another host'),
  'network_type': Field('such as "Ethernet"', _EMPTY),
  'network_media': Field('such as "copper" or "optical fibre"', _EMPTY),
  'network_rate': Field('such as "100 Gbit/s"', _EMPTY),
  'nic_loadgen': Field("model of the LoadGen host's network card", _EMPTY),
  'number_nic_loadgen': Field('how many of them', _EMPTY),
  'net_software_stack_loadgen': Field('its driver and stack', _EMPTY),
  'network_protocol': Field('such as "gRPC over TCP"', _EMPTY),
  'number_connections': Field('connections between the two hosts', _EMPTY),
  'nic_sut': Field("model of the system's network card", _EMPTY),
  'number_nic_sut': Field('how many of them', _EMPTY),
  'net_software_stack_sut': Field('its driver and stack', _EMPTY),
  'network_topology': Field('how the two hosts are joined', _EMPTY),
}

# The checker requires these keys only with power measurements.
POWER: Mapping[str, Field] = {
  'power_management': Field('settings of the power management', _EMPTY),
  'filesystem': Field('file system of the disks', _EMPTY),
  'boot_firmware_version': Field('version of BIOS or UEFI', _EMPTY),
  'management_firmware_version': Field('version of the BMC', _EMPTY),
  'other_hardware': Field('whatever else draws power', _EMPTY),
  'number_of_type_nics_installed': Field('network cards by type', _EMPTY),
  'nics_enabled_firmware': Field('cards that the firmware enables', _EMPTY),
  'nics_enabled_os': Field('cards that the system enables', _EMPTY),
  'nics_enabled_connected': Field('cards with a cable', _EMPTY),
  'network_speed_mbit': Field('speed of the network in Mbit/s', _EMPTY),
  'power_supply_quantity_and_rating_watts': Field(
    'power supplies and their ratings', _EMPTY
  ),
  'power_supply_details': Field('their models', _EMPTY),
  'disk_drives': Field('models of the disks', _EMPTY),
  'disk_controllers': Field('models of their controllers', _EMPTY),
}

ALL: Mapping[str, Field] = {**REQUIRED, **NETWORK, **POWER}

# Published descriptions contain these placeholders for missing values.
_PLACEHOLDERS = ('', 'todo', 'tbd')


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


def check(values: Mapping[str, Any]) -> None:
  """Checks the names of keys, and the values of keys with fixed choices.

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
    choices = ALL[name].choices
    if choices and is_filled(value) and value not in choices:
      raise ValueError(
        f'{name} is {value!r}; it must be one of'
        f' {", ".join(map(repr, choices))}'
      )
