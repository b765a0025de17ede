"""Finds addresses and ports of this machine."""

import ipaddress
import os
import socket

import psutil

LOOPBACK_VARIABLE = 'SAX_DEBUG_IPADDR'
_LOOPBACK = '127.0.0.1'
_EVERY_INTERFACE = ('', '0.0.0.0', '::')
# IPv6 addresses from here on are private or not unicast.
_FIRST_LOCAL_V6 = ipaddress.IPv6Address('fc00::')


def _is_reachable(text: str) -> bool:
  address = ipaddress.ip_address(text.partition('%')[0])
  if (
    address.is_loopback
    or address.is_link_local
    or address.is_multicast
    or address.is_unspecified
  ):
    return False
  return address.version == 4 or address < _FIRST_LOCAL_V6


def advertised_host() -> str:
  """Returns the address under which other machines reach this one.

  Returns:
    127.0.0.1 if SAX_DEBUG_IPADDR=1 or if no interface has another address.
    Otherwise, the first interface address that is neither loopback nor
    link-local.
  """
  if os.environ.get(LOOPBACK_VARIABLE) == '1':
    return _LOOPBACK
  for addresses in psutil.net_if_addrs().values():
    for item in addresses:
      if item.family not in (socket.AF_INET, socket.AF_INET6):
        continue
      if _is_reachable(item.address):
        return item.address
  return _LOOPBACK


def join_host_port(host: str, port: int) -> str:
  """Returns "host:port", with an IPv6 host in brackets."""
  return f'[{host}]:{port}' if ':' in host else f'{host}:{port}'


def advertised_address(port: int, host: str = '') -> str:
  """Returns the "host:port" under which clients reach a port of this machine.

  Args:
    port: The port that a server listens on.
    host: The address that it listens on. '' is every interface.
  """
  if host in _EVERY_INTERFACE:
    host = advertised_host()
  return join_host_port(host, port)


def is_loopback(address: str) -> bool:
  """Returns True if an IP address belongs to this machine alone."""
  try:
    parsed = ipaddress.ip_address(address)
  except ValueError:
    return False
  mapped = getattr(parsed, 'ipv4_mapped', None)
  return (mapped or parsed).is_loopback


def pick_free_port() -> int:
  """Returns a TCP port that is free now; another program may take it first."""
  with socket.socket() as s:
    s.bind(('', 0))
    return s.getsockname()[1]
