"""Tests of the contents of layers, and that builds are reproducible."""

import gzip
import hashlib
import pathlib
import tarfile

from absl.testing import absltest

from deploy.images import layer


class LayerTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self.directory = pathlib.Path(self.create_tempdir().full_path)

  def _write(self, name: str, entries) -> tuple[pathlib.Path, layer.Digests]:
    path = self.directory / name
    layer.write(path, entries)
    return path, layer.digests(path)

  def test_entries_survive_a_round_trip(self):
    source = self.directory / 'source'
    source.write_bytes(b'from a file')
    path, _ = self._write(
      'a.tar.gz',
      {
        'usr/bin/run': layer.File(b'text', 0o755),
        'usr/lib/data': layer.File(source),
        'lib': layer.Link('usr/lib'),
        'tmp': layer.Directory(0o1777),
      },
    )
    with tarfile.open(path) as tar:
      members = {m.name: m for m in tar.getmembers()}
      self.assertEqual(
        list(members),
        ['lib', 'tmp', 'usr', 'usr/bin', 'usr/bin/run', 'usr/lib']
        + ['usr/lib/data'],
      )
      self.assertEqual(members['usr/bin/run'].mode, 0o755)
      self.assertEqual(members['tmp'].mode, 0o1777)
      self.assertEqual(members['lib'].linkname, 'usr/lib')
      self.assertTrue(members['usr'].isdir())
      self.assertEqual(tar.extractfile('usr/lib/data').read(), b'from a file')

  def test_same_files_give_same_bytes(self):
    first = {f'f{i}': layer.File(bytes([i]) * 999) for i in range(9)}
    backwards = dict(reversed(first.items()))
    a, of_a = self._write('a.tar.gz', first)
    b, of_b = self._write('b.tar.gz', backwards)
    self.assertEqual(a.read_bytes(), b.read_bytes())
    self.assertEqual(of_a, of_b)
    for data, digest in (
      (a.read_bytes(), of_a.blob),
      (gzip.decompress(a.read_bytes()), of_a.diff_id),
    ):
      self.assertEqual(digest, f'sha256:{hashlib.sha256(data).hexdigest()}')

  def test_paths_that_lead_out_are_refused(self):
    for path in '/etc/passwd', '../x', 'a/../../x', 'a//b', './a':
      with (
        self.subTest(path),
        self.assertRaisesRegex(ValueError, 'not a plain'),
      ):
        self._write('x.tar.gz', {path: layer.File(b'')})

  def test_modules_are_compiled(self):
    broken = layer.File(self.directory / 'broken.py')
    broken.contents.write_text('def (')
    good = layer.File(self.directory / 'good.py')
    good.contents.write_text('X = {"b", "a"}\n')
    sources = {'p/broken.py': broken, 'p/good.py': good, 'p/data.txt': good}
    compiled = layer.compiled(sources)
    self.assertEqual(list(compiled), ['p/__pycache__/good.cpython-311.pyc'])
    self.assertEqual(compiled, layer.compiled(sources))


if __name__ == '__main__':
  absltest.main()
