import os
import pathlib
import tarfile

from absl.testing import absltest

from harness.submission import archive


class ArchiveTest(absltest.TestCase):
  def test_holds_the_tree_and_no_owner(self):
    root = pathlib.Path(self.create_tempdir().full_path)
    tree = root / 'tree'
    (tree / 'open' / 'a').mkdir(parents=True)
    (tree / 'open' / 'a' / 'two.txt').write_text('2', 'utf-8')
    (tree / 'open' / 'one.txt').write_text('1', 'utf-8')
    path = archive.default_path(tree)
    self.assertEqual(path.name, 'tree.tar.gz')
    archive.write(tree, path)
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
      archive.write(root / 'tree', root / 'file' / 'a.tar.gz')
    self.assertCountEqual(os.listdir(root), ['tree', 'file'])


if __name__ == '__main__':
  absltest.main()
