import os
import pathlib
import tarfile

from absl.testing import absltest

from harness.submission import tree as tree_lib


class TreeTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self.root = pathlib.Path(self.create_tempdir().full_path)
    self.output = self.root / 'submission'

  def test_writes_bytes_and_copies(self):
    source = self.root / 'log.txt'
    source.write_text('log', 'utf-8')
    tree_lib.write(
      {'open/a/x.json': b'{}', 'open/a/b/log.txt': source}, self.output
    )
    self.assertEqual((self.output / 'open/a/x.json').read_bytes(), b'{}')
    self.assertEqual((self.output / 'open/a/b/log.txt').read_text(), 'log')
    self.assertCountEqual(os.listdir(self.root), ['log.txt', 'submission'])

  def test_existing_tree_is_replaced(self):
    tree_lib.write({'open/old.md': b'old'}, self.output)
    tree_lib.write({'open/new.md': b'new'}, self.output)
    self.assertEqual(os.listdir(self.output / 'open'), ['new.md'])

  def test_failure_keeps_the_existing_tree(self):
    tree_lib.write({'open/old.md': b'old'}, self.output)
    with self.assertRaises(FileNotFoundError):
      tree_lib.write({'open/new.md': self.root / 'missing'}, self.output)
    self.assertEqual(os.listdir(self.output / 'open'), ['old.md'])
    self.assertEqual(os.listdir(self.root), ['submission'])

  def test_only_a_submission_is_cleaned(self):
    self.assertIsNone(tree_lib.may_write(self.output, clean=False))
    self.output.mkdir()
    self.assertIsNone(tree_lib.may_write(self.output, clean=False))
    (self.output / 'open').mkdir()
    self.assertIn('is not empty', tree_lib.may_write(self.output, clean=False))
    self.assertIsNone(tree_lib.may_write(self.output, clean=True))
    (self.output / 'thesis.tex').write_text('x', 'utf-8')
    self.assertIn('thesis.tex', tree_lib.may_write(self.output, clean=True))

  def test_an_output_that_is_a_file(self):
    self.output.write_text('x', 'utf-8')
    self.assertIn(
      'is not a directory', tree_lib.may_write(self.output, clean=True)
    )

  def test_files_refused_by_the_checker_are_reported(self):
    large = self.root / 'large.txt'
    with open(large, 'wb') as file:
      file.truncate(50 * 1024 * 1024 + 1)
    texts = tree_lib.problems(
      {
        'open/a': b'',
        'open/b': self.root / 'missing',
        'open/c': large,
        'open/d': b'good',
      }
    )
    self.assertLen(texts, 3)
    self.assertEqual(texts[0], 'open/a would be empty.')
    self.assertRegex(texts[1], 'missing is missing. It becomes open/b')
    self.assertRegex(texts[2], 'large.txt has 52428801 bytes')


class ArchiveTest(absltest.TestCase):
  def test_holds_the_tree_and_no_owner(self):
    root = pathlib.Path(self.create_tempdir().full_path)
    tree = root / 'tree'
    (tree / 'open' / 'a').mkdir(parents=True)
    (tree / 'open' / 'a' / 'two.txt').write_text('2', 'utf-8')
    (tree / 'open' / 'one.txt').write_text('1', 'utf-8')
    path = tree_lib.default_archive(tree)
    self.assertEqual(path.name, 'tree.tar.gz')
    tree_lib.archive(tree, path)
    with tarfile.open(path) as file:
      self.assertEqual(file.getnames(), ['open/a/two.txt', 'open/one.txt'])
      self.assertEqual({m.uname for m in file.getmembers()}, {''})
      self.assertEqual(file.extractfile('open/one.txt').read(), b'1')
    self.assertCountEqual(os.listdir(root), ['tree', 'tree.tar.gz'])

  def test_a_failure_leaves_nothing(self):
    root = pathlib.Path(self.create_tempdir().full_path)
    (root / 'tree').mkdir()
    (root / 'file').write_text('x', 'utf-8')
    with self.assertRaises(OSError):
      tree_lib.archive(root / 'tree', root / 'file' / 'a.tar.gz')
    self.assertCountEqual(os.listdir(root), ['tree', 'file'])


if __name__ == '__main__':
  absltest.main()
