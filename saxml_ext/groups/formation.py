"""Which processes form a group: from flags, LeaderWorkerSet or a TPU slice.

A group is one model server on several hosts. Its processes are started alike
and find out here how many they are, which of them each one is, and where
process 0 can be reached; all else they learn from process 0.
"""

from collections.abc import Mapping
import dataclasses
import ipaddress
import os
import socket

from saxml_ext.common import errors
from saxml_ext.groups import tpu_slice

AUTO, NONE, FLAGS, LWS, TPU = SOURCES = ('auto', 'none', 'flags', 'lws', 'tpu')
# As jax/_src/clusters/cloud_tpu_cluster.py has it.
DEFAULT_PORT = 8482

# LeaderWorkerSet sets them in every container of a group; sigs.k8s.io/lws.
_LWS_ADDRESS = 'LWS_LEADER_ADDRESS'
_LWS_SIZE = 'LWS_GROUP_SIZE'
_LWS_INDEX = 'LWS_WORKER_INDEX'


@dataclasses.dataclass(frozen=True)
class Formation:
  """One process among those of its group.

  Attributes:
    coordinator_address: "host:port" at which process 0 takes connections of
      jax.distributed.
    num_processes: of the group, at least 2.
    process_id: of this one; 0 leads.
  """

  coordinator_address: str
  num_processes: int
  process_id: int

  @property
  def leads(self) -> bool:
    """Whether this is process 0."""
    return self.process_id == 0

  @property
  def coordinator_host(self) -> str:
    """The host of `coordinator_address`, an IPv6 one without brackets."""
    return self.coordinator_address.rpartition(':')[0].strip('[]')

  @property
  def interface(self) -> str | None:
    """Where process 0 listens: at the address alone that the others know.

    None stands for every interface. A name may mean the loopback interface on
    the host itself, so only for a number it is known.
    """
    try:
      ipaddress.ip_address(self.coordinator_host)
    except ValueError:
      return None
    return self.coordinator_host


@dataclasses.dataclass(frozen=True)
class Given:
  """What the command line says; None where it says nothing.

  Attributes:
    source: one of SOURCES.
    coordinator_address, num_processes, process_id: as jax.distributed's.
    host_ordinal: stock Sax's name for process_id.
  """

  source: str = AUTO
  coordinator_address: str | None = None
  num_processes: int | None = None
  process_id: int | None = None
  host_ordinal: int | None = None


def find(
  given: Given,
  on_tpu: bool,
  environment: Mapping[str, str] = os.environ,
) -> Formation | None:
  """The group that this process belongs to; None if it serves alone.

  Args:
    given: by the command line.
    on_tpu: whether this host has TPU chips that will be used, so that the
      metadata of its slice may be asked for.
    environment: variables to look at.

  Raises:
    errors.InvalidArgument: what is given does not make a group, or two sources
      contradict each other.
    errors.FailedPrecondition: the metadata of the TPU slice cannot be read.
  """
  process_id = _process_id(given)
  addressed = (given.coordinator_address, given.num_processes) != (None, None)
  if given.source in (NONE, LWS, TPU) and addressed:
    raise errors.InvalidArgument(
      f'--group={given.source} does not go with --coordinator_address or'
      ' --num_processes: leave these out, or use --group=flags'
    )
  found = None
  if given.source == FLAGS or given.source == AUTO and addressed:
    return _checked(_of_flags(given, process_id))
  if given.source in (AUTO, LWS):
    found = _of_lws(environment, required=given.source == LWS)
  if found is None and given.source in (AUTO, TPU):
    found = _of_tpu(environment, on_tpu, required=given.source == TPU)
  if found is None:
    if process_id:
      raise errors.InvalidArgument(
        f'this is to be process {process_id} of a group, but nothing tells of'
        ' the group: give --coordinator_address=HOST:PORT and --num_processes'
        ' too'
      )
    return None
  if process_id not in (None, found.process_id):
    raise errors.InvalidArgument(
      f'the command line says that this is process {process_id}, but its'
      f' surroundings say {found.process_id}: leave --process_id and'
      ' --host_ordinal out'
    )
  return _checked(found)


def host_name() -> str:
  """What this host is called in messages."""
  return socket.gethostname() or 'unknown'


def _process_id(given: Given) -> int | None:
  """The process's number by the command line, under either name."""
  if None not in (given.process_id, given.host_ordinal):
    if given.process_id != given.host_ordinal:
      raise errors.InvalidArgument(
        f'--process_id={given.process_id} and --host_ordinal='
        f'{given.host_ordinal} are two names of one number: give one of them'
      )
  return given.host_ordinal if given.process_id is None else given.process_id


def _of_flags(given: Given, process_id: int | None) -> Formation:
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
      f'a group by flags needs {" and ".join(missing)} as well: give'
      ' --coordinator_address=HOST:PORT (of process 0), --num_processes=N and'
      ' --process_id=I (0 to N-1) to each process'
    )
  assert given.coordinator_address is not None
  assert given.num_processes is not None and process_id is not None
  return Formation(given.coordinator_address, given.num_processes, process_id)


def _of_lws(environment: Mapping[str, str], required: bool) -> Formation | None:
  """By the variables of LeaderWorkerSet; None without them."""
  values = {
    name: environment.get(name, '')
    for name in (_LWS_ADDRESS, _LWS_SIZE, _LWS_INDEX)
  }
  if not any(values.values()) and not required:
    return None
  missing = [name for name, value in values.items() if not value]
  if missing:
    raise errors.InvalidArgument(
      f'{" and ".join(missing)} must be set, as LeaderWorkerSet does: use a'
      ' release that sets all three (v0.4 or later), or --group=none'
    )
  size, index = (
    _number(name, values[name]) for name in (_LWS_SIZE, _LWS_INDEX)
  )
  return Formation(values[_LWS_ADDRESS], size, index)


def _of_tpu(
  environment: Mapping[str, str], on_tpu: bool, required: bool
) -> Formation | None:
  """By what a TPU host knows of its slice; None if it is alone or no TPU."""
  found = tpu_slice.of_environment(environment)
  if found is None and (on_tpu or required):
    found = tpu_slice.of_metadata(environment)
  if found is None:
    if required:
      raise errors.InvalidArgument(
        '--group=tpu, but neither TPU_WORKER_HOSTNAMES and TPU_WORKER_ID nor'
        ' the metadata of this machine tell of a TPU slice: use --group=flags'
      )
    return None
  return Formation(found.hosts[0], len(found.hosts), found.worker)


def _number(name: str, text: str) -> int:
  if not text.isdecimal():
    raise errors.InvalidArgument(f'{name}={text} is not a number from 0 on')
  return int(text)


def _checked(found: Formation) -> Formation | None:
  """A group with its port; None if it is one of one process."""
  n, i = found.num_processes, found.process_id
  if n < 1:
    raise errors.InvalidArgument(f'a group of {n} processes: at least 1')
  if not 0 <= i < n:
    raise errors.InvalidArgument(
      f'this is to be process {i} of {n}: the numbers go from 0 to {n - 1}'
    )
  if n == 1:
    return None
  return dataclasses.replace(
    found, coordinator_address=_with_port(found.coordinator_address)
  )


def _with_port(address: str) -> str:
  """ "host:port" of an address that may leave the port out."""
  host, colon, port = address.rpartition(':')
  if not colon or address.endswith(']'):
    host, port = address, str(DEFAULT_PORT)
  elif ':' in host and not host.startswith('['):  # IPv6 without brackets.
    host, port = f'[{address}]', str(DEFAULT_PORT)
  if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
    raise errors.InvalidArgument(
      f'{address!r} is no address of a coordinator: expected HOST:PORT'
    )
  return f'{host}:{port}'
