"""Finds the hosts of the TPU slice to which this host belongs.

GKE sets environment variables, and Compute Engine has a metadata server. Both
are read in the same way as in jax/_src/clusters/cloud_tpu_cluster.py. JAX's own
code is not used, because it would query the metadata server on every machine
and wait for the timeout.
"""

from collections.abc import Mapping
import dataclasses
import urllib.error
import urllib.request

from absl import logging

from saxml_ext.common import errors

_HOSTS = 'TPU_WORKER_HOSTNAMES'
_WORKER = 'TPU_WORKER_ID'
_SLICES = 'MEGASCALE_NUM_SLICES'
# Google's client libraries read the first variable, and JAX reads the second.
_SERVER_VARIABLES = ('GCE_METADATA_HOST', 'GCE_METADATA_IP')
_SERVER = 'metadata.google.internal'
_PATH = '/computeMetadata/v1/instance/attributes/'
_TIMEOUT_SECS = 5.0


@dataclasses.dataclass(frozen=True)
class Slice:
  """A TPU slice and the position of this host in it.

  Attributes:
    hosts: The addresses of the hosts, in the order of the workers.
    worker: The number of this host.
  """

  hosts: tuple[str, ...]
  worker: int


def from_environment(environment: Mapping[str, str]) -> Slice | None:
  """Returns the slice described by GKE's variables, or None if they are unset.

  Raises:
    errors.InvalidArgument: The variables contradict each other.
  """
  if not environment.get(_HOSTS):
    return None
  _check_slices(environment.get(_SLICES, ''))
  return _slice(
    tuple(environment[_HOSTS].split(',')),
    environment.get(_WORKER, ''),
    f'{_HOSTS} and {_WORKER}',
  )


def from_metadata(environment: Mapping[str, str]) -> Slice | None:
  """Returns the slice in the machine's metadata, or None without a TPU.

  Raises:
    errors.FailedPrecondition: The metadata server does not answer.
    errors.InvalidArgument: The metadata contradict each other.
  """
  server = next(filter(None, map(environment.get, _SERVER_VARIABLES)), _SERVER)
  worker = _attribute(server, 'agent-worker-number')
  if worker is None:
    return None
  endpoints = _attribute(server, 'worker-network-endpoints') or ''
  return _slice(
    tuple(_address(endpoint) for endpoint in endpoints.split(',')),
    worker.strip(),
    'worker-network-endpoints and agent-worker-number of the metadata',
  )


def _slice(hosts: tuple[str, ...], worker: str, source: str) -> Slice:
  hosts = tuple(host.strip() for host in hosts)
  if not all(hosts) or not worker.isdecimal() or int(worker) >= len(hosts):
    raise errors.InvalidArgument(
      f'{source} are {",".join(hosts)!r} and {worker!r}, not the hosts of a'
      ' slice and the number of one of them. Pass --coordinator_address,'
      ' --num_processes and --process_id instead.'
    )
  return Slice(hosts, int(worker))


def _check_slices(number: str) -> None:
  if number not in ('', '1'):
    raise errors.InvalidArgument(
      f'{_SLICES}={number}, but a model server runs on one slice. Start one'
      ' server on each slice, as replicas of the model.'
    )


def _address(endpoint: str) -> str:
  """Returns the host of an endpoint: "host" or the older "name:id:ip"."""
  return endpoint.rpartition(':')[2]


def _attribute(server: str, name: str) -> str | None:
  """Returns an attribute of this machine, or None if it does not exist."""
  request = urllib.request.Request(
    f'http://{server}{_PATH}{name}', headers={'Metadata-Flavor': 'Google'}
  )
  # The metadata server is never behind a proxy.
  opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
  try:
    with opener.open(request, timeout=_TIMEOUT_SECS) as response:
      return response.read().decode()
  except urllib.error.HTTPError as e:
    if e.code == 404:
      logging.info('the metadata of this machine has no %s', name)
      return None
    raise _unreadable(server, name, e) from e
  except OSError as e:
    raise _unreadable(server, name, e) from e


def _unreadable(
  server: str, name: str, error: OSError
) -> errors.FailedPrecondition:
  return errors.FailedPrecondition(
    f'{name} cannot be read from the metadata server {server}: {error}. Pass'
    ' --coordinator_address, --num_processes and --process_id, or --group=none'
    ' for a server on this host alone.'
  )
