"""Chooses the address at which the CPUs of several processes connect.

JAX uses gloo for sums among the CPUs of processes. gloo listens on the address
to which the machine's own host name resolves. On many machines that is a
loopback address such as Debian's 127.0.1.1. On machines with two networks it
may be the wrong address, and network namespaces share one host name. In these
cases other hosts cannot connect. The others can always reach the address from
which a process connects to the group's coordinator. So gloo gets that address.

GPUs do not need this: NCCL tries a machine's interfaces, and NCCL_SOCKET_IFNAME
selects one. TPUs have their own network.
"""

import socket

import jax
from jax._src import distributed
from jax._src import xla_bridge
from jax._src.lib import _jax


def listen_towards(coordinator_address: str) -> str:
  """Makes gloo listen on the address from which the coordinator is reached.

  Call it after `jax.distributed.initialize` and before the first use of a
  device. It has no effect if JAX does not use CPUs, or if
  `jax_cpu_collectives_implementation` is not gloo, JAX's default. It uses
  private interfaces of jax 0.10, which has no option for the address.

  Args:
    coordinator_address: The address HOST:PORT that `jax.distributed.initialize`
      uses.

  Returns:
    The address, such as 10.0.0.5.

  Raises:
    OSError: The host is unknown, or there is no route to it.
    RuntimeError: A device has been used already, or JAX is not initialized for
      several processes.
  """
  address = source_address(coordinator_address)
  client = distributed.global_state.client
  if client is None:
    raise RuntimeError('call jax.distributed.initialize before listen_towards.')

  def make_client():
    if jax.config.jax_cpu_collectives_implementation != 'gloo':
      return xla_bridge.make_cpu_client()
    return xla_bridge.make_cpu_client(
      _jax.make_gloo_tcp_collectives(client, hostname=address)
    )

  xla_bridge.register_backend_factory(
    'cpu', make_client, priority=0, fail_quietly=False
  )
  return address


def source_address(destination: str) -> str:
  """Returns the address from which this machine would send to HOST:PORT.

  Raises:
    OSError: The host is unknown, or there is no route to it.
  """
  host, _, port = destination.rpartition(':')
  addresses = socket.getaddrinfo(
    host.strip('[]'), int(port), type=socket.SOCK_DGRAM
  )
  family, kind, protocol, _, address = addresses[0]
  with socket.socket(family, kind, protocol) as probe:
    probe.connect(address)
    return probe.getsockname()[0]
