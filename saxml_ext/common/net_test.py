"""Tests of addresses and ports."""

import os
import socket
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import psutil

from saxml_ext.common import net


class _Address:
  def __init__(self, address: str):
    self.address = address
    self.family = socket.AF_INET6 if ':' in address else socket.AF_INET


class NetTest(parameterized.TestCase):
  @parameterized.parameters(
    (['127.0.0.1', '169.254.1.1', '10.1.2.3'], '10.1.2.3'),
    (['::1', 'fe80::1%eth0', 'fd00::1', '2001:db8::1'], '2001:db8::1'),
    (['127.0.0.1'], '127.0.0.1'),
    ([], '127.0.0.1'),
  )
  def test_first_reachable_address(self, addresses, expected):
    interfaces = {'eth0': [_Address(text) for text in addresses]}
    with mock.patch.object(psutil, 'net_if_addrs', return_value=interfaces):
      with mock.patch.dict(os.environ, {net.LOOPBACK_VARIABLE: ''}):
        self.assertEqual(net.advertised_host(), expected)

  def test_loopback_on_request(self):
    with mock.patch.dict(os.environ, {net.LOOPBACK_VARIABLE: '1'}):
      self.assertEqual(net.advertised_address(80), '127.0.0.1:80')

  @parameterized.parameters(
    ('127.0.0.2', '127.0.0.2:80'),
    ('::1', '[::1]:80'),
    ('node1', 'node1:80'),
    ('', '10.1.2.3:80'),
    ('0.0.0.0', '10.1.2.3:80'),
    ('::', '10.1.2.3:80'),
  )
  def test_listening_address_is_advertised(self, host, expected):
    interfaces = {'eth0': [_Address('10.1.2.3')]}
    with mock.patch.object(psutil, 'net_if_addrs', return_value=interfaces):
      with mock.patch.dict(os.environ, {net.LOOPBACK_VARIABLE: ''}):
        self.assertEqual(net.advertised_address(80, host), expected)

  def test_ipv6_is_bracketed(self):
    self.assertEqual(net.join_host_port('2001:db8::1', 1), '[2001:db8::1]:1')

  def test_free_port_can_be_bound(self):
    with socket.socket() as s:
      s.bind(('127.0.0.1', net.pick_free_port()))


if __name__ == '__main__':
  absltest.main()
