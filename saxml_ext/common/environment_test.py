"""Tests of environment variables that stand in for flags."""

import os
from unittest import mock

from absl.testing import absltest

from saxml_ext.common import environment
from saxml_ext.common import errors


class EnvironmentTest(absltest.TestCase):
  def set(self, name: str, value: str) -> None:
    self.enterContext(mock.patch.dict(os.environ, {name: value}))

  def test_flag_comes_first(self):
    self.set(environment.CELL, '/sax/env')
    self.set(environment.ADMIN_PORT, '1')
    self.assertEqual(environment.text('/sax/f', environment.CELL), '/sax/f')
    self.assertEqual(environment.port(0, environment.ADMIN_PORT, 2), 0)

  def test_variable_comes_next(self):
    self.set(environment.CELL, '/sax/env')
    self.set(environment.ADMIN_PORT, '65535')
    self.assertEqual(environment.text(None, environment.CELL), '/sax/env')
    self.assertEqual(environment.port(None, environment.ADMIN_PORT, 2), 65535)

  def test_neither(self):
    for name in (environment.CELL, environment.ADMIN_PORT):
      self.set(name, '')
    self.assertEqual(environment.text(None, environment.CELL), '')
    self.assertEqual(environment.port(None, environment.ADMIN_PORT, 2), 2)

  def test_no_port(self):
    for told in ('http', '-1', '65536', '1e3', ' 1'):
      self.set(environment.ADMIN_PORT, told)
      with self.assertRaisesRegex(
        errors.InvalidArgument, f'SAX_ADMIN_SERVER_PORT="{told}".*0 to 65535'
      ):
        environment.port(None, environment.ADMIN_PORT, 2)


if __name__ == '__main__':
  absltest.main()
