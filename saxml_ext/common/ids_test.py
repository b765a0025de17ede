"""Compares the checks of ids and paths with the recorded tables."""

from collections.abc import Callable
from typing import Any

from absl.testing import absltest
from absl.testing import parameterized

from saxml_ext.common import errors
from saxml_ext.common import ids
from saxml_ext.common.security import acl_file
from saxml_ext.common.testing import golden


def _in_test_cell(text: str) -> ids.ModelId:
  return ids.check_model_in_cell(text, '/sax/test')


def _method_acl(method: str) -> None:
  acl_file.check_method_acls({method: ''})


class RecordedTest(parameterized.TestCase):
  @parameterized.named_parameters(
    ('cell_id', 'cell_id', ids.parse_cell_id),
    ('model_id', 'model_id', ids.parse_model_id),
    ('cell_or_model', 'cell_or_model', ids.parse_cell_or_model_id),
    ('in_cell', 'model_id_in_cell_sax_test', _in_test_cell),
    ('model_path', 'model_path', ids.check_model_path),
    ('checkpoint_path', 'checkpoint_path', ids.check_checkpoint_path),
    ('fs_root', 'fs_root', ids.check_fs_root),
    ('num_replicas', 'num_replicas', ids.check_replicas),
    ('acl_name', 'acl_name', acl_file.check_acl_name),
    ('admin_acl', 'model_admin_acl', acl_file.check_acl_name),
    ('method_acl', 'method_acl_method', _method_acl),
  )
  def test_ids_match_the_recorded_table(
    self, table: str, check: Callable[[Any], Any]
  ):
    rows = golden.load('validation.json')[table]
    self.assertNotEmpty(rows)
    for row in rows:
      with self.subTest(row['input']):
        if row['ok']:
          check(row['input'])
          continue
        with self.assertRaises(errors.SaxError) as caught:
          check(row['input'])
        self.assertEqual(caught.exception.wire_text(), row['error'])


class IdsTest(absltest.TestCase):
  def test_cell_ids_are_checked(self):
    cell = ids.parse_cell_id('/sax/test')
    self.assertEqual(cell.name, 'test')
    self.assertEqual(str(cell), '/sax/test')

  def test_model_ids_are_checked(self):
    model = ids.parse_model_id('/sax/test/gptj-6b')
    self.assertEqual(model.cell, '/sax/test')
    self.assertEqual(model.model, 'gptj-6b')
    self.assertEqual(str(model), '/sax/test/gptj-6b')
    self.assertEqual(model.braced, '{test gptj-6b}')

  def test_cell_or_model_ids_are_checked(self):
    self.assertIsInstance(ids.parse_cell_or_model_id('/sax/a'), ids.CellId)
    self.assertIsInstance(ids.parse_cell_or_model_id('/sax/a/b'), ids.ModelId)

  def test_names_are_limited_and_messages_short(self):
    for check in (
      lambda name: ids.parse_cell_id(f'/sax/{name}'),
      lambda name: ids.parse_model_id(f'/sax/test/{name}'),
      lambda name: ids.check_model_in_cell(f'/sax/other/{name}', '/sax/test'),
      ids.parse_cell_or_model_id,
      ids.check_model_path,
      ids.check_checkpoint_path,
      ids.check_fs_root,
      acl_file.check_acl_name,
      lambda name: acl_file.check_acl_name(f'acl/{name}'),
      acl_file.check_method,
    ):
      for name in (100_000 * 'a', 100_000 * '?'):
        with self.assertRaises(errors.InvalidArgument) as caught:
          check(name)
        self.assertLess(len(caught.exception.message), 1000)
    model = ids.parse_model_id(f'/sax/test/{512 * "m"}')
    self.assertLess(len(model.braced), 150)

  def test_too_many_replicas(self):
    with self.assertRaisesRegex(errors.InvalidArgument, 'at most 2147483647'):
      ids.check_replicas(2**31)


_KNOWN = (
  'lm.params.gptj.GPTJ',
  'lm.params.gptj.GPTJ4',
  'lm.params.llama.Llama',
)


class NearMissesTest(absltest.TestCase):
  def test_typo_is_near(self):
    self.assertEqual(
      ids.near_misses('lm.params.llama.Lama', _KNOWN), ['lm.params.llama.Llama']
    )

  def test_class_name_alone_comes_first(self):
    self.assertEqual(ids.near_misses('gptj4', _KNOWN), ['lm.params.gptj.GPTJ4'])
    self.assertEqual(
      ids.near_misses('lm.params.gptj4.GPTJ', _KNOWN)[0], 'lm.params.gptj.GPTJ'
    )

  def test_distant_names_are_not_near(self):
    self.assertEqual(ids.near_misses('something.else.Bert', _KNOWN), [])

  def test_three_near_misses_are_returned_at_most(self):
    known = [f'a.b.Model{i}' for i in range(9)]
    self.assertLen(ids.near_misses('a.b.Model', known), 3)

  def test_absurd_lengths_are_not_compared(self):
    self.assertEqual(ids.near_misses('a' * 10**6, ['a' * 10**6 + 'b']), [])


if __name__ == '__main__':
  absltest.main()
