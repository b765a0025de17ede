import hashlib
import json
import os

from absl.testing import absltest

from harness.results import entry


def _entry(**changes) -> entry.Entry:
  values = dict(
    benchmark='gptj',
    model='gptj-99',
    scenario='Offline',
    round='v4.0',
    system='cell',
    parameters={'params': 'A', 'sample_count': 8},
    command=('//harness:offline', '--sample_count=8'),
    began='2026-01-01T00:00:00+00:00',
    ended='2026-01-01T00:01:00+00:00',
    accuracy=entry.Accuracy({'rouge1': 40.5}, "{'rouge1': 40.5}"),
    performance=entry.Performance(
      True, 'samples_per_second', 8.5, 10.0, 85, latency_ns={'99.00': 1e9}
    ),
  )
  return entry.Entry(**(values | changes))


class EntryTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self._dir = self.create_tempdir().full_path

  def test_written_and_read(self):
    for written in (_entry(), _entry(accuracy=None, performance=None)):
      path = written.write(self._dir)
      self.assertEqual(entry.read(self._dir), written)
      with open(path, encoding='utf-8') as file:
        self.assertEqual(json.load(file)['id'], written.id)
    self.assertEqual(os.listdir(self._dir), [entry.FILE])

  def test_figures_are_unchanged_after_reading(self):
    metrics = {'rouge1': 40.5, 'gen_num': 20, 'rougeLsum': None}
    written = _entry(accuracy=entry.Accuracy(metrics, '{}'))
    written.write(self._dir)
    read = entry.read(self._dir)
    self.assertEqual(str(read.accuracy.metrics), str(metrics))
    self.assertEqual(read.write(self._dir), written.write(self._dir))

  def test_field_of_another_type_is_refused_with_its_path(self):
    path = _entry().write(self._dir)
    with open(path, encoding='utf-8') as file:
      record = json.load(file)
    record['performance']['samples'] = 'many'
    with open(path, 'w', encoding='utf-8') as file:
      json.dump(record, file)
    with self.assertRaisesRegex(
      ValueError, 'result.json is no result of the harness: .*samples'
    ):
      entry.read(self._dir)

  def test_id_depends_on_the_parameters(self):
    known = _entry().id
    self.assertRegex(known, '^[0-9a-f]{12}$')
    self.assertEqual(_entry(began='later', governor='performance').id, known)
    self.assertNotEqual(_entry(parameters={'params': 'B'}).id, known)
    self.assertNotEqual(_entry(round='v4.1').id, known)
    self.assertEqual(
      _entry(parameters={'sample_count': 8, 'params': 'A'}).id, known
    )

  def test_other_files_are_refused(self):
    with self.assertRaises(FileNotFoundError):
      entry.read(self._dir)
    path = _entry().write(self._dir)
    for text, message in (
      ('{', 'is no result'),
      ('[]', 'is no result'),
      ('{"format": 1, "id": ""}', 'is no result'),
      (
        '{"format": 7, "id": ""}',
        'has format 7, but this program reads format 1',
      ),
    ):
      with open(path, 'w', encoding='utf-8') as file:
        file.write(text)
      with self.assertRaisesRegex(ValueError, message):
        entry.read(self._dir)


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
    # FIPS 180-2 contains the SHA-256 of "abc".
    self.assertEqual(
      entry.file_sha256(self._write('a', 'abc')),
      'ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad',
    )
    with self.assertRaises(FileNotFoundError):
      entry.file_sha256(os.path.join(self._dir, 'b'))

  def test_hash_of_a_tree_equals_that_of_sha256sum(self):
    self._write('b/c', 'abc')
    self._write('a', '')
    text = (
      f'{hashlib.sha256(b"").hexdigest()}  a\n'
      f'{hashlib.sha256(b"abc").hexdigest()}  b/c\n'
    )
    known = hashlib.sha256(text.encode()).hexdigest()
    self.assertEqual(entry.tree_sha256(self._dir), known)
    os.utime(os.path.join(self._dir, 'a'), (0, 0))
    self.assertEqual(entry.tree_sha256(self._dir), known)
    os.rename(os.path.join(self._dir, 'a'), os.path.join(self._dir, 'd'))
    self.assertNotEqual(entry.tree_sha256(self._dir), known)

  def test_missing_tree_has_no_hash(self):
    with self.assertRaisesRegex(ValueError, 'contains no file'):
      entry.tree_sha256(self._dir)
    with self.assertRaises(FileNotFoundError):
      entry.tree_sha256(os.path.join(self._dir, 'absent'))


if __name__ == '__main__':
  absltest.main()
