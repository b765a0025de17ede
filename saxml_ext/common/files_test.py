"""Tests of files that are written atomically."""

import dataclasses
import os
import pathlib
import shutil
import socket
import stat
import tempfile
import threading
from unittest import mock

from absl.testing import absltest

from saxml_ext.common import files


@dataclasses.dataclass(frozen=True)
class _Speed:
  queries: float
  names: tuple[str, ...] = ()


class ReplacingTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self.dir = pathlib.Path(self.create_tempdir().full_path)
    self.path = self.dir / 'a'

  def test_writes_text_and_bytes(self):
    with files.replacing(self.path) as f:
      f.write('ü\n')
    self.assertEqual(self.path.read_bytes(), b'\xc3\xbc\n')
    with files.replacing(str(self.path), 'wb') as f:
      f.write(b'\xff')
    self.assertEqual(self.path.read_bytes(), b'\xff')
    self.assertEqual(os.listdir(self.dir), ['a'])

  def test_readers_see_the_old_file_until_the_block_ends(self):
    self.path.write_text('old')
    with files.replacing(self.path) as f:
      f.write('new')
      f.flush()
      self.assertEqual(self.path.read_text(), 'old')
      self.assertEqual(pathlib.Path(f.name).read_text(), 'new')
    self.assertEqual(self.path.read_text(), 'new')

  def test_failed_block_leaves_the_old_file_alone(self):
    self.path.write_text('old')
    for sole_writer in (False, True):
      with self.assertRaises(KeyboardInterrupt):
        with files.replacing(self.path, sole_writer=sole_writer) as f:
          f.write('new')
          raise KeyboardInterrupt
      self.assertEqual(self.path.read_text(), 'old')
      self.assertEqual(os.listdir(self.dir), ['a'])

  def test_failed_disk_leaves_the_old_file_alone(self):
    self.path.write_text('old')
    with mock.patch.object(os, 'fsync', side_effect=OSError(28, 'No space')):
      with self.assertRaisesRegex(OSError, 'No space'):
        with files.replacing(self.path) as f:
          f.write('new')
    self.assertEqual(self.path.read_text(), 'old')
    self.assertEqual(os.listdir(self.dir), ['a'])

  def test_missing_directory(self):
    with self.assertRaises(FileNotFoundError):
      with files.replacing(self.dir / 'b' / 'c'):
        self.fail('The block ran.')

  def test_permissions_are_applied(self):
    old = os.umask(0o027)
    self.addCleanup(os.umask, old)
    for permissions, expected in (
      (None, 0o640),
      (0o600, 0o600),
      (0o644, 0o644),
    ):
      for sole_writer in (False, True):
        with files.replacing(
          self.path, permissions=permissions, sole_writer=sole_writer
        ) as f:
          if permissions == 0o600:
            self.assertEqual(stat.S_IMODE(os.stat(f.name).st_mode), 0o600)
        self.assertEqual(stat.S_IMODE(self.path.stat().st_mode), expected)

  def test_concurrent_writers_write_whole_files(self):
    def write(letter: str) -> None:
      for _ in range(10):
        with files.replacing(self.path) as f:
          for _ in range(3):
            f.write(letter * 100)
            f.flush()

    writers = [threading.Thread(target=write, args=(s,)) for s in 'abcd']
    for writer in writers:
      writer.start()
    for writer in writers:
      writer.join()
    self.assertIn(self.path.read_text(), [s * 300 for s in 'abcd'])
    self.assertEqual(os.listdir(self.dir), ['a'])

  def test_sole_writer_replaces_files_of_a_killed_one(self):
    left = self.dir / 'a.partial'
    left.write_text('more than is written now')
    with files.replacing(self.path, sole_writer=True) as f:
      self.assertEqual(f.name, str(left))
      f.write('new')
    self.assertEqual(self.path.read_text(), 'new')
    self.assertEqual(os.listdir(self.dir), ['a'])


class NewDirectoryTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self.dir = pathlib.Path(self.create_tempdir().full_path)
    self.path = self.dir / 'a'

  def _write(self, text: str, **options) -> None:
    with files.new_directory(self.path, **options) as unfinished:
      pathlib.Path(unfinished, 'file').write_text(text)

  def test_directory_exists_when_the_block_ends(self):
    with files.new_directory(self.path):
      self.assertFalse(self.path.exists())
    self._write('one')
    self.assertEqual((self.path / 'file').read_text(), 'one')
    self.assertEqual(os.listdir(self.dir), ['a'])

  def test_replaces_only_on_request(self):
    self._write('one')
    with self.assertRaises(OSError):
      self._write('two')
    self.assertEqual((self.path / 'file').read_text(), 'one')
    self._write('two', replace=True)
    self.assertEqual((self.path / 'file').read_text(), 'two')
    self.assertEqual(os.listdir(self.dir), ['a'])

  def test_failed_block_leaves_nothing(self):
    self._write('one')
    with self.assertRaises(ZeroDivisionError):
      with files.new_directory(self.path, replace=True):
        raise ZeroDivisionError
    self.assertEqual((self.path / 'file').read_text(), 'one')
    self.assertEqual(os.listdir(self.dir), ['a'])


class JsonTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self.path = pathlib.Path(self.create_tempdir().full_path, 'a.json')

  def test_round_trip(self):
    speed = _Speed(1.5, ('a', 'ü'))
    files.write_json(self.path, speed)
    self.assertEqual(files.read_json(self.path, _Speed), speed)
    self.assertEqual(
      files.read_json(self.path), {'queries': 1.5, 'names': ['a', 'ü']}
    )
    self.assertEndsWith(self.path.read_text(), ']\n}\n')

  def test_layout_is_indented_and_ends_with_a_newline(self):
    self.assertEqual(
      files.encode_json({'b': 1, 'a': []}, indent=1, sort_keys=True),
      '{\n "a": [],\n "b": 1\n}\n',
    )

  def test_non_json_numbers_are_refused(self):
    for number in (float('nan'), float('inf')):
      with self.assertRaises(ValueError):
        files.write_json(self.path, _Speed(number))
    self.assertFalse(self.path.exists())

  def test_wrong_type_names_file_position_and_remedy(self):
    self.path.write_text('{"queries": 1, "names": ["a", 2]}')
    with self.assertRaisesRegex(
      ValueError, r'a\.json: .*`int` - at `\$\.names\[1\]`. Correct the file'
    ):
      files.read_json(self.path, _Speed)

  def test_wrong_syntax_names_file_position_and_remedy(self):
    for text, position in (
      ('{"queries": 1,\n  x}', ' at line 2, column 3'),
      ('{"queries": 1', ''),
      ('', ''),
    ):
      self.path.write_text(text)
      with self.subTest(text):
        with self.assertRaisesRegex(
          ValueError, rf'a\.json is not JSON{position}: .*. Correct the file'
        ):
          files.read_json(self.path, _Speed)

  def test_invalid_utf8_is_refused(self):
    self.path.write_bytes(b'{"queries": 1, "names": ["\xff"]}')
    with self.assertRaisesRegex(ValueError, 'a.json'):
      files.read_json(self.path, _Speed)

  def test_missing_file(self):
    with self.assertRaises(FileNotFoundError):
      files.read_json(self.path)


class UntrustedFileTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self.dir = pathlib.Path(self.create_tempdir().full_path)
    self.path = self.dir / 'a'
    self.path.write_bytes(b'1234')

  def refused(self, message: str, path=None, limit=4, **options) -> None:
    with self.assertRaisesRegex(files.UnusableFileError, message):
      files.read_file(path or self.path, limit, **options)

  def test_regular_files_up_to_the_limit_are_read(self):
    self.assertEqual(files.read_file(self.path, 4), b'1234')
    self.refused('it has 4 bytes, above the limit of 3', limit=3)
    os.truncate(self.path, 2**33)
    self.refused(f'it has {2**33} bytes')
    with self.assertRaises(FileNotFoundError):
      files.read_file(self.dir / 'b', 4)

  def test_other_file_types_are_refused_immediately(self):
    os.mkfifo(self.dir / 'fifo')
    (self.dir / 'zero').symlink_to('/dev/zero')
    with tempfile.TemporaryDirectory(dir='/tmp') as short:
      with socket.socket(socket.AF_UNIX) as server:
        server.bind(f'{short}/socket')
      shutil.move(f'{short}/socket', self.dir / 'socket')
    for name in ('fifo', 'zero', 'socket', '.'):
      self.refused('not a regular file', self.dir / name)
    with self.assertRaises(files.UnusableFileError):
      files.open_regular(self.dir / 'fifo', os.O_WRONLY)

  def test_links_stay_in_the_directory_or_the_hub_cache(self):
    blobs = self.dir / 'hub' / 'models--a--b' / 'blobs'
    snapshot = self.dir / 'hub' / 'models--a--b' / 'snapshots' / 'r'
    for directory in (blobs, snapshot):
      directory.mkdir(parents=True)
    (blobs / 'f00').write_bytes(b'{}')
    (snapshot / 'blob').symlink_to('../../blobs/f00')
    (snapshot / 'same').symlink_to('blob')
    (snapshot / 'out').symlink_to(self.path)
    (self.dir / 'link').symlink_to(snapshot)
    for directory in (snapshot, self.dir / 'link'):
      for name in ('blob', 'same'):
        self.assertEqual(
          files.read_file(directory / name, 4, links_within=directory), b'{}'
        )
      self.refused('is a link to', directory / 'out', links_within=directory)
    self.assertEqual(files.read_file(snapshot / 'out', 4), b'1234')

  def test_links_of_bazel_are_followed(self):
    for name in ('source', 'tree'):
      (self.dir / name / 'model').mkdir(parents=True)
    (self.dir / 'source/model/config.json').write_bytes(b'{}')
    (self.dir / 'source/private').write_bytes(b'{}')
    tree = self.dir / 'tree/model'
    (tree / 'config.json').symlink_to(self.dir / 'source/model/config.json')
    (tree / 'vocab.json').symlink_to(self.dir / 'source/private')
    files.read_file(tree / 'config.json', 4, links_within=tree)
    self.refused('is a link to', tree / 'vocab.json', links_within=tree)

  def test_files_writable_by_others_are_not_private(self):
    files.check_private(self.path)
    for path, mode in ((self.path, 0o606), (self.dir, 0o777)):
      before = stat.S_IMODE(path.stat().st_mode)
      path.chmod(mode)
      self.refused('chmod go-w', check=files.check_private)
      path.chmod(before)
    self.dir.chmod(0o1777)
    files.check_private(self.path)

  def test_files_of_other_users_are_refused(self):
    if os.geteuid():
      self.skipTest('Only root can give files to other users.')
    os.chown(self.path, 12345, -1)
    self.refused('user 12345 owns it', check=files.check_private)
    self.refused('user 12345 owns it', check=files.check_owner)
    # The owner of the directory could replace the file anyway.
    os.chown(self.dir, 12345, -1)
    files.read_file(self.path, 4, check=files.check_owner)
    self.refused('user 12345 owns it', check=files.check_private)


if __name__ == '__main__':
  absltest.main()
