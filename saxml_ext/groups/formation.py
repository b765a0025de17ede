"""Finds the processes of a group by flags, LeaderWorkerSet or a TPU slice.

A group is one model server on several hosts. All its processes are started with
the same command. This module finds the number of processes, the number of this
process and the address of process 0. The processes receive all other facts from
process 0.
"""

from collections.abc import Mapping
import dataclasses
import ipaddress
import os
import socket

from saxml_ext.common import errors
from saxml_ext.groups import tpu_slice

AUTO, NONE, FLAGS, LWS, TPU = SOURCES = ('auto', 'none', 'flags', 'lws', 'tpu')
# The default port in jax/_src/clusters/cloud_tpu_cluster.py.
DEFAULT_PORT = 8482

# LeaderWorkerSet (sigs.k8s.io/lws) sets these variables in every container of a
# group.
_LWS_ADDRESS = 'LWS_LEADER_ADDRESS'
_LWS_SIZE = 'LWS_GROUP_SIZE'
_LWS_INDEX = 'LWS_WORKER_INDEX'


@dataclasses.dataclass(frozen=True)
class Formation:
  """The position of a process in its group.

  Attributes:
    coordinator_address: The "host:port" at which process 0 accepts connections
      of jax.distributed.
    num_processes: The number of processes of the group, at least 2.
    process_id: The number of this process; 0 is the leader.
  """

  coordinator_address: str
  num_processes: int
  process_id: int

  @property
  def leads(self) -> bool:
    """True if this is process 0."""
    return self.process_id == 0

  @property
  def coordinator_host(self) -> str:
    """The host of `coordinator_address`; an IPv6 address has no brackets."""
    return self.coordinator_address.rpartition(':')[0].strip('[]')

  @property
  def interface(self) -> str | None:
    """The address on which process 0 listens, or None for all interfaces.

    It is the coordinator's address if that is an IP address. A host name could
    resolve to the loopback interface on its own host, so None is returned for
    it.
    """
    try:
      ipaddress.ip_address(self.coordinator_host)
    except ValueError:
      return None
    return self.coordinator_host


@dataclasses.dataclass(frozen=True)
class Given:
  """The values of the group's flags; None for a flag that is not set.

  Attributes:
    source: One of SOURCES.
    coordinator_address: The address of process 0, for jax.distributed.
    num_processes: The number of processes, for jax.distributed.
    process_id: The number of this process, for jax.distributed.
    host_ordinal: The number of this process, under stock Sax's name.
  """

  source: str = AUTO
  coordinator_address: str | None = None
  num_processes: int | None = None
  process_id: int | None = None
  host_ordinal: int | None = None


def find(
  given: Given, on_tpu: bool, environment: Mapping[str, str] = os.environ
) -> Formation | None:
  """Returns this process's place in its group, or None if it serves alone.

  Args:
    given: The values of the flags.
    on_tpu: True if this host has TPU chips that will be used. Only then is the
      metadata of the TPU slice read.
    environment: The environment variables.

  Raises:
    errors.InvalidArgument: The values do not describe a group, or two sources
      contradict each other.
    errors.FailedPrecondition: The metadata of the TPU slice cannot be read.
  """
  process_id = _process_id(given)
  addressed = (given.coordinator_address, given.num_processes) != (None, None)
  if given.source in (NONE, LWS, TPU) and addressed:
    raise errors.InvalidArgument(
      f'--group={given.source} cannot be used with --coordinator_address or'
      ' --num_processes. Leave these out, or use --group=flags.'
    )
  formation = None
  if given.source == FLAGS or given.source == AUTO and addressed:
    return _checked(_from_flags(given, process_id))
  if given.source in (AUTO, LWS):
    formation = _from_lws(environment, required=given.source == LWS)
  if formation is None and given.source in (AUTO, TPU):
    formation = _from_tpu(environment, on_tpu, required=given.source == TPU)
  if formation is None:
    if process_id:
      raise errors.InvalidArgument(
        f'this is process {process_id} of an unknown group. Pass'
        ' --coordinator_address=HOST:PORT and --num_processes too.'
      )
    return None
  if process_id not in (None, formation.process_id):
    raise errors.InvalidArgument(
      f'this is process {process_id} by its flags, but process'
      f' {formation.process_id} by its environment. Leave out --process_id and'
      ' --host_ordinal.'
    )
  return _checked(formation)


def host_name() -> str:
  """Returns the name of this host for use in messages."""
  return socket.gethostname() or 'unknown'


def _process_id(given: Given) -> int | None:
  """Returns the process number that either of the two flags sets."""
  if None not in (given.process_id, given.host_ordinal):
    if given.process_id != given.host_ordinal:
      raise errors.InvalidArgument(
        f'--process_id={given.process_id} and'
        f' --host_ordinal={given.host_ordinal} set the same number. Pass one.'
      )
  return given.host_ordinal if given.process_id is None else given.process_id


def _from_flags(given: Given, process_id: int | None) -> Formation:
  missing = [
    flag
    for flag, value in (
      ('--coordinator_address', given.coordinator_address),
      ('--num_processes', given.num_processes),
      ('--process_id', process_id),
    )
    if value is None
  ]
  if missing:
    raise errors.InvalidArgument(
      f'a group by flags also needs {" and ".join(missing)}. Pass'
      ' --coordinator_address=HOST:PORT (of process 0), --num_processes=N and'
      ' --process_id=I (0 to N-1) to each process.'
    )
  assert given.coordinator_address is not None
  assert given.num_processes is not None and process_id is not None
  return Formation(given.coordinator_address, given.num_processes, process_id)


def _from_lws(
  environment: Mapping[str, str], required: bool
) -> Formation | None:
  """Returns the formation set by LeaderWorkerSet's variables, or None."""
  values = {
    name: environment.get(name, '')
    for name in (_LWS_ADDRESS, _LWS_SIZE, _LWS_INDEX)
  }
  if not any(values.values()) and not required:
    return None
  missing = [name for name, value in values.items() if not value]
  if missing:
    raise errors.InvalidArgument(
      f'{" and ".join(missing)} must be set by LeaderWorkerSet. Use a release'
      ' that sets all three variables (v0.4 or later), or --group=none.'
    )
  size, index = (
    _number(name, values[name]) for name in (_LWS_SIZE, _LWS_INDEX)
  )
  return Formation(values[_LWS_ADDRESS], size, index)


def _from_tpu(
  environment: Mapping[str, str], on_tpu: bool, required: bool
) -> Formation | None:
  """Returns the formation of the TPU slice; None for one host or no TPU."""
  tpus = tpu_slice.from_environment(environment)
  if tpus is None and (on_tpu or required):
    tpus = tpu_slice.from_metadata(environment)
  if tpus is None:
    if required:
      raise errors.InvalidArgument(
        '--group=tpu, but neither TPU_WORKER_HOSTNAMES and TPU_WORKER_ID nor'
        ' the metadata of this machine show a TPU slice. Use --group=flags.'
      )
    return None
  return Formation(tpus.hosts[0], len(tpus.hosts), tpus.worker)


def _number(name: str, text: str) -> int:
  if not text.isdecimal():
    raise errors.InvalidArgument(f'{name}={text} is not a number of at least 0')
  return int(text)


def _checked(formation: Formation) -> Formation | None:
  """Checks the numbers and adds the port; returns None for one process."""
  n, i = formation.num_processes, formation.process_id
  if n < 1:
    raise errors.InvalidArgument(f'a group needs at least 1 process, not {n}')
  if not 0 <= i < n:
    raise errors.InvalidArgument(
      f'this is process {i} of {n}, but the numbers are 0 to {n - 1}'
    )
  if n == 1:
    return None
  return dataclasses.replace(
    formation, coordinator_address=_add_port(formation.coordinator_address)
  )


def _add_port(address: str) -> str:
  """Returns an address as "host:port", with the default port if it has none."""
  host, colon, port = address.rpartition(':')
  if not colon or address.endswith(']'):
    host, port = address, str(DEFAULT_PORT)
  elif ':' in host and not host.startswith('['):  # Bare IPv6 address.
    host, port = f'[{address}]', str(DEFAULT_PORT)
  if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
    raise errors.InvalidArgument(
      f'{address!r} is not the address of a coordinator. Expected: HOST:PORT'
    )
  return f'{host}:{port}'
