"""Tests short names of models."""

import os
from unittest import mock

from absl.testing import absltest

from saxml_ext.client.transport import options


class NamesTest(absltest.TestCase):
  def test_short_name_belongs_to_the_default_cell(self):
    for cell in ('/sax/test', '/sax/test/'):
      with mock.patch.dict(os.environ, SAX_CELL=cell):
        self.assertEqual(options.default_cell(), '/sax/test')
        self.assertEqual(options.model_id('m'), '/sax/test/m')
        self.assertEqual(options.model_id('/sax/other/m'), '/sax/other/m')
        self.assertEqual(options.model_id('a/m'), 'a/m')
        self.assertEqual(options.model_id(''), '')

  def test_short_name_needs_a_default_cell(self):
    with mock.patch.dict(os.environ):
      os.environ.pop('SAX_CELL', None)
      self.assertEqual(options.default_cell(), '')
      self.assertEqual(options.model_id('m'), 'm')


if __name__ == '__main__':
  absltest.main()
