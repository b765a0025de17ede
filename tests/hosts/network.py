"""Simulates several hosts on one machine: namespaces joined by a bridge.

Each host has its own name, address, ports and a link that can be cut. The hosts
share the machine's files, as hosts of a cell share a bucket or a file server.
The program that creates them is on their network too. All of this is in
namespaces, see `namespaces`.
"""

from collections.abc import Sequence
import dataclasses
import subprocess

from tests.hosts import namespaces

_BRIDGE = 'cell'
_SUBNET = '10.77.0'
# This script sets a host's name, "$0", and runs a command line, "$@".
_NAMED = 'echo "$0" > /proc/sys/kernel/hostname; exec "$@"'


@dataclasses.dataclass(frozen=True)
class Host:
  """A host: its name and its address."""

  name: str
  address: str

  def argv(self, argv: Sequence[str]) -> tuple[str, ...]:
    """Returns the command line that runs `argv` on this host."""
    inside = ('ip', 'netns', 'exec', self.name, 'unshare', '--uts')
    return (*inside, 'sh', '-ec', _NAMED, self.name, *argv)


def enter() -> str:
  """Calls `namespaces.enter`."""
  return namespaces.enter(
    ('--net', '--mount'),
    'mount -t tmpfs none /run && ip netns && unshare --uts true',
  )


class Network:
  """Hosts on one bridge; must be created after `enter`."""

  def __init__(self):
    # The ip command stores its names of namespaces there. The mount hides the
    # machine's own names.
    _run('mount', '-t', 'tmpfs', 'none', '/run')
    _ip(f'link add {_BRIDGE} type bridge')
    _ip(f'addr add {_SUBNET}.1/24 dev {_BRIDGE}')
    _ip(f'link set {_BRIDGE} up')
    self._hosts: list[Host] = []

  def add_host(self, name: str) -> Host:
    """Adds a host with a name of at most ten letters, linked to the others."""
    host = Host(name, f'{_SUBNET}.{len(self._hosts) + 2}')
    self._hosts.append(host)
    _ip(f'netns add {name}')
    _ip(f'link add to-{name} type veth peer name eth0 netns {name}')
    _ip(f'link set to-{name} master {_BRIDGE} up')
    _ip(f'-n {name} addr add {host.address}/24 dev eth0')
    _ip(f'-n {name} link set eth0 up')
    _ip(f'-n {name} link set lo up')
    return host

  def cut(self, host: Host) -> None:
    """Takes a host off the network; its programs continue without notice."""
    # The host's end stays up, because taking it down would end connections.
    _ip(f'link set to-{host.name} nomaster')

  def mend(self, host: Host) -> None:
    """Puts a host back on the network."""
    _ip(f'link set to-{host.name} master {_BRIDGE}')


def _ip(arguments: str) -> None:
  _run('ip', *arguments.split())


def _run(*argv: str) -> None:
  subprocess.run(argv, check=True, timeout=30)
