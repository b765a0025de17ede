import hashlib
import os

from absl.testing import absltest

from harness.description import hashes


class HashesTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self._dir = self.create_tempdir().full_path

  def _write(self, name: str, text: str) -> str:
    path = os.path.join(self._dir, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, 'w', encoding='utf-8') as file:
      file.write(text)
    return path

  def test_file(self):
    # The SHA-256 of "abc", of FIPS 180-2.
    self.assertEqual(
      hashes.file_sha256(self._write('a', 'abc')),
      'ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad',
    )
    with self.assertRaises(FileNotFoundError):
      hashes.file_sha256(os.path.join(self._dir, 'b'))

  def test_tree_is_what_sha256sum_would_say(self):
    self._write('b/c', 'abc')
    self._write('a', '')
    text = (
      f'{hashlib.sha256(b"").hexdigest()}  a\n'
      f'{hashlib.sha256(b"abc").hexdigest()}  b/c\n'
    )
    known = hashlib.sha256(text.encode()).hexdigest()
    self.assertEqual(hashes.tree_sha256(self._dir), known)
    os.utime(os.path.join(self._dir, 'a'), (0, 0))
    self.assertEqual(hashes.tree_sha256(self._dir), known)
    os.rename(os.path.join(self._dir, 'a'), os.path.join(self._dir, 'd'))
    self.assertNotEqual(hashes.tree_sha256(self._dir), known)

  def test_no_tree(self):
    with self.assertRaisesRegex(ValueError, 'holds no file'):
      hashes.tree_sha256(self._dir)
    with self.assertRaises(FileNotFoundError):
      hashes.tree_sha256(os.path.join(self._dir, 'absent'))


if __name__ == '__main__':
  absltest.main()
