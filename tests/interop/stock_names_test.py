"""Tests that calls written for stock Sax's Python client work with ours."""

import inspect
from typing import Any

from absl.testing import absltest
from absl.testing import parameterized

import sax as stock
from saxml_ext.client import sax
from saxml_ext.client import sax_aio
from saxml_ext.client.testing import fake_cell

# The argument names in stock Sax's client (saxml/client/python/sax.pyi), in
# order.
_FUNCTIONS = {
  'GetACL': 'cell_or_model_id method_id options',
  'List': 'id options',
  'ListAll': 'id options',
  'ListDetail': 'id options',
  'Publish': 'id model_path checkpoint_path num_replicas overrides options',
  'SetACL': 'cell_or_model_id acl method_id options',
  'Stats': 'id options',
  'Unpublish': 'id options',
  'Update': 'id model_path checkpoint_path num_replicas options',
  'WaitForReady': 'id num_replicas options',
}
_METHODS = {
  ('AM', 'Recognize'): 'audio_bytes options',
  ('CM', 'Custom'): 'request method_name options',
  ('CM', 'CustomNoException'): 'request method_name options',
  ('LM', 'Embed'): 'text options',
  ('LM', 'Generate'): 'text options',
  ('LM', 'GenerateStream'): 'text callback options',
  ('LM', 'Gradient'): 'prefix suffix options',
  ('LM', 'Score'): 'prefix suffix options',
  ('MM', 'Embed'): 'request options',
  ('MM', 'Generate'): 'request options',
  ('MM', 'Score'): 'request options',
  ('VM', 'Classify'): 'image_bytes options',
  ('VM', 'Detect'): 'image_bytes text boxes options',
  ('VM', 'Embed'): 'image options',
  ('VM', 'ImageToImage'): 'text options',
  ('VM', 'ImageToText'): 'image_bytes text options',
  ('VM', 'TextAndImageToImage'): 'text image_bytes options',
  ('VM', 'TextToImage'): 'text options',
  ('VM', 'TokenToVideo'): 'tokens options',
  ('VM', 'VideoToText'): 'image_frames text options',
  ('VM', 'VideoToToken'): 'image_frames options',
}


def _names(function: Any) -> str:
  """Returns the names of the arguments that can be positional."""
  parameters = inspect.signature(function).parameters.values()
  return ' '.join(p.name for p in parameters if p.kind is not p.KEYWORD_ONLY)


class StockNamesTest(parameterized.TestCase):
  @parameterized.named_parameters(('sax', sax), ('sax_aio', sax_aio))
  def test_functions(self, module):
    got = {name: _names(getattr(module, name)) for name in _FUNCTIONS}
    self.assertEqual(got, _FUNCTIONS)

  @parameterized.named_parameters(('sax', sax), ('sax_aio', sax_aio))
  def test_methods(self, module):
    model = module.Model(fake_cell.MODEL)
    got = {
      (kind, name): _names(getattr(getattr(model, kind)(), name))
      for kind, name in _METHODS
    }
    expected = dict(_METHODS)
    if module is sax_aio:  # Its streams are iterators.
      expected['LM', 'GenerateStream'] = 'text options'
    self.assertEqual(got, expected)

  def test_keywords_of_admin_calls(self):
    cell = fake_cell.FakeCell(self.create_tempdir().full_path)
    self.addCleanup(cell.stop)
    sax.SetRoot(cell.root)
    model_id = '/sax/test/keywords'
    sax.Publish(
      id=model_id, model_path='p.A', checkpoint_path='None', num_replicas=1
    )
    self.assertIn(model_id, sax.ListAll(id=fake_cell.CELL))
    self.assertEqual(sax.List(id=model_id)[:2], ('p.A', 'None'))
    self.assertEqual(sax.GetACL(model_id, method_id='lm.score'), '')
    sax.Unpublish(id=model_id)
    self.assertNotIn(model_id, sax.ListAll(id=fake_cell.CELL))

  def test_top_level_module(self):
    self.assertIs(stock, sax)


if __name__ == '__main__':
  absltest.main()
