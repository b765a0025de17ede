"""A model server of several processes, as on several hosts, on this machine.

Together they compute one model, split among their devices: a group, which is
one model server of the cell. On real hosts the same program is started with the
same flags, see docs/multi_host.md; here its network is the loopback interface.
"""

from collections.abc import Mapping
import json
import os

from saxml_ext.common import net

MESH = 'ICI_MESH_SHAPE'

_PLATFORMS = 'JAX_PLATFORMS'
# How many devices JAX makes of a process's CPU; one, where it is not set.
_CPU_DEVICES = 'JAX_NUM_CPU_DEVICES'


def flags(hosts: int) -> list[dict[str, object]]:
  """What each process of a group is told of it, in the order of their ids.

  Args:
    hosts: how many processes; one alone is told nothing.
  """
  if hosts == 1:
    return [{}]
  address = net.join_host_port('127.0.0.1', net.pick_free_port())
  return [
    {
      'coordinator_address': address,
      'num_processes': hosts,
      'process_id': process,
    }
    for process in range(hosts)
  ]


def environment(
  hosts: int, environ: Mapping[str, str] = os.environ
) -> dict[str, str]:
  """Variables for the processes of a group.

  They compute on the CPU, unless `environ` says otherwise: an accelerator of
  this machine cannot be had by two processes.

  Args:
    hosts: how many processes; one alone needs none.
    environ: variables that are set.
  """
  if hosts == 1 or _PLATFORMS in environ:
    return {}
  return {_PLATFORMS: 'cpu'}


def overrides(
  hosts: int,
  given: Mapping[str, str],
  environ: Mapping[str, str] = os.environ,
) -> dict[str, str]:
  """Overrides of the serving params that split the work among a group.

  Each device has the whole model, and its part of the requests: with the
  bundled model on two CPU devices a sample took 0.14 s of CPU time that way, and
  0.21 s with the model split, whose partial sums cross the network in each layer.

  Args:
    hosts: how many processes; one alone leaves the params as they are.
    given: the user's overrides, which may have a mesh of their own.
    environ: variables that the processes will have.

  Raises:
    ValueError: the variables are not what JAX takes.
  """
  if hosts == 1:
    return dict(given)
  text = environ.get(_CPU_DEVICES) or '1'
  if not text.isdecimal() or not int(text):
    raise ValueError(
      f'{_CPU_DEVICES}={text}: must be a whole number, at least 1'
    )
  return {MESH: json.dumps([1, hosts * int(text), 1])} | dict(given)
