"""Tests of short names of models."""

import os
from unittest import mock

from absl.testing import absltest

from saxml_ext.client.transport import names


class NamesTest(absltest.TestCase):
  def test_short_names_are_of_the_default_cell(self):
    for cell in ('/sax/test', '/sax/test/'):
      with mock.patch.dict(os.environ, SAX_CELL=cell):
        self.assertEqual(names.default_cell(), '/sax/test')
        self.assertEqual(names.complete('m'), '/sax/test/m')
        self.assertEqual(names.complete('/sax/other/m'), '/sax/other/m')
        self.assertEqual(names.complete('a/m'), 'a/m')
        self.assertEqual(names.complete(''), '')

  def test_without_a_default_cell(self):
    with mock.patch.dict(os.environ):
      os.environ.pop('SAX_CELL', None)
      self.assertEqual(names.default_cell(), '')
      self.assertEqual(names.complete('m'), 'm')


if __name__ == '__main__':
  absltest.main()
